"""Multi-head attention.

Axes: B batch, T target (query) length, S source (key) length, D model width, N heads,
H = D / N head width.
"""

import keras
import tensorflow as tf

from tf_transformer.functional.attention.cached import cached_attention
from tf_transformer.functional.attention.scaled_dot_product import scaled_dot_product_attention
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.layers.positions.positions import part_config, with_part


@keras.saving.register_keras_serializable(package="tf_transformer")
class MultiHeadAttention(NotesLayer, keras.layers.Layer):
    """N parallel attention heads, each on its own H-wide projection of the input.

    Concat(head_1, ..., head_N) W_O with head_n = Attention(Q W_Q, K W_K, V W_V),
    "Attention Is All You Need", section 3.2.2.

    Args:
        d_model: int, the width D of queries and output.
        num_heads: int, N; must divide `d_model`.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        positions: None, or the part of self-attention that tells the order of tokens, for example
            `RotaryPositions()`; see `layers.positions`.

    Call arguments:
        v, k, q as in the paper: q (B, T, D), k and v (B, S, any width); float.
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (B, N, T, S); see `functional.attention.masks.blocked_scores`.
        return_attention_weights: False returns None instead of the weights, which are not kept.
        bias: None, a float tensor that broadcasts to (B, N, T, S), added to the scores, or
            `ByDistance`.
        causal: bool, True also blocks every key that comes after its query, without a T x S mask.

    Returns:
        `(output, attention_weights)`: (B, T, D) and (B, N, T, S) or None.

    Raises:
        ValueError: If `d_model` is not divisible by `num_heads`, an input is not of rank 3, the
            mask has an integer dtype or does not broadcast, or both `bias` and `positions` add to
            the scores.

    Example:
        >>> layer = MultiHeadAttention(d_model=8, num_heads=2)
        >>> output, weights = layer(tf.ones((1, 3, 8)), tf.ones((1, 5, 8)), tf.ones((1, 5, 8)))
        >>> output.shape.as_list(), weights.shape.as_list()
        ([1, 3, 8], [1, 2, 3, 5])
    """

    def __init__(self, d_model, num_heads, *, jit="auto", positions=None, **kwargs):
        super().__init__(**kwargs)
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(
                f"d_model, num_heads: expected d_model to be a multiple of num_heads, got "
                f"d_model={d_model} and num_heads={num_heads}."
            )
        self.d_model = d_model
        self.num_heads = num_heads
        self.jit = jit
        self.positions = positions
        self.wq = FlatDense(d_model, name="wq", dtype=self.dtype_policy)
        self.wk = FlatDense(d_model, name="wk", dtype=self.dtype_policy)
        self.wv = FlatDense(d_model, name="wv", dtype=self.dtype_policy)
        self.dense = FlatDense(d_model, name="dense", dtype=self.dtype_policy)

    def build(self, q_shape, k_shape, v_shape):
        self.wq.build(q_shape)
        self.wk.build(k_shape)
        self.wv.build(v_shape)
        self.dense.build((*q_shape[:-1], self.d_model))
        if self.positions is not None and not self.positions.built:
            depth = self.d_model // self.num_heads
            self.positions.build((None, self.num_heads, None, depth))

    def call(self, q, k, v, mask=None, return_attention_weights=True, bias=None, causal=False):
        # Here, not in `build`: once built, a layer no longer checks shapes.
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if len(tensor.shape) != 3:
                raise ValueError(
                    f"{name}: expected (batch, length, width), got shape {tuple(tensor.shape)}."
                )
        if not k.shape[:-1].is_compatible_with(v.shape[:-1]):
            raise ValueError(
                f"k, v: expected one value for each key, got k {tuple(k.shape)} and "
                f"v {tuple(v.shape)}."
            )
        keys, values = self.keys_values(k, v)
        return self.attend(q, keys, values, mask, return_attention_weights, bias, causal)

    def keys_values(self, k, v):
        """Project keys and values and split them into heads, ready for a decoder to cache.

        Args:
            k, v: float tensors (B, S, width).

        Returns:
            Two tensors (B, N, S, H).
        """
        batch_size = tf.shape(k)[0]
        keys = self._placed(self.split_heads(self.wk(k), batch_size), tf.range(tf.shape(k)[1]))
        return keys, self.split_heads(self.wv(v), batch_size)

    def attend(
        self, q, keys, values, mask=None, return_attention_weights=True, bias=None, causal=False
    ):
        """Attend from `q` to keys and values returned by `keys_values`.

        Args:
            q: float tensor (B, T, D).
            keys, values: (B, N, S, H).
            mask, return_attention_weights, bias, causal: same as in `call`.

        Returns:
            Same as `call`.
        """
        batch_size, length = tf.unstack(tf.shape(q)[:2])
        queries = self._placed(self.split_heads(self.wq(q), batch_size), tf.range(length))
        heads, weights = scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask,
            bias=self._bias(queries, keys, bias, causal),
            causal=causal,
            return_attention_weights=return_attention_weights,
            jit=self.jit,
        )
        return self._join_heads(heads, batch_size), weights

    def step(self, x, cache, slot, mask=None, at=None):
        """Attend from new positions to themselves and to cached ones.

        Args:
            x: float tensor (B, T, D), the new positions.
            cache: two tensors (B, N, C, H), keys and values in C slots.
            slot, mask: see `cached_attention`.
            at: the positions of the new tokens and of those in the slots, int32 (T,) and (C,); by
                default a token's position is its slot.

        Returns:
            `(output, cache)`: (B, T, D), which without a mask equals these rows of `call` with
            `causal=True`, and the cache with the new keys and values.
        """
        batch_size, length = tf.unstack(tf.shape(x)[:2])
        slots = tf.shape(cache[0])[2]
        at = (slot + tf.range(length), tf.range(slots)) if at is None else at
        new, old = (tf.cast(positions, tf.int32) for positions in at)  # (T,), (C,)
        q, keys = (
            self._placed(self.split_heads(project(x), batch_size), new)
            for project in (self.wq, self.wk)
        )
        values = self.split_heads(self.wv(x), batch_size)
        bias = self._bias(q, cache[0], None, causal=True)
        distances = None if bias is None else old - tf.expand_dims(new, 1)  # (T, C)
        heads, cache = cached_attention(
            q, keys, values, cache, slot, mask, bias, distances, jit=self.jit
        )
        return self._join_heads(heads, batch_size), cache

    def _placed(self, heads, positions):
        return heads if self.positions is None else self.positions.rotate(heads, positions)

    def _bias(self, queries, keys, bias, causal):
        if self.positions is None:
            return bias
        slots = tf.shape(keys)[2] if keys.shape[2] is None else keys.shape[2]
        by_distance = self.positions.by_distance(queries, slots, causal)
        if by_distance is not None and bias is not None:
            raise ValueError(
                f"bias: expected None, since {type(self.positions).__name__} adds its own to the "
                f"scores. Add yours in a part of `layers.positions`."
            )
        return bias if by_distance is None else by_distance

    def split_heads(self, x, batch_size):
        """Split the last axis into heads: (B, T, D) -> (B, N, T, H)."""
        depth = self.d_model // self.num_heads
        # T is explicit where the notes use -1, which cannot be inferred for an empty batch.
        x = tf.reshape(x, (batch_size, tf.shape(x)[1], self.num_heads, depth))
        return tf.transpose(x, (0, 2, 1, 3))  # (B, N, T, H)

    def _join_heads(self, heads, batch_size):
        heads = tf.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
        heads = tf.reshape(heads, (batch_size, tf.shape(heads)[1], self.d_model))  # (B, T, D)
        return self.dense(heads)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "jit": self.jit,
            "positions": part_config(self.positions),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))
