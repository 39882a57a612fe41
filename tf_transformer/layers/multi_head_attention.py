"""Multi-head attention.

Axes: B batch, T target (query) length, S source (key) length, D model width, N heads, G heads of
keys and values, H head width, C cache slots.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.functional.attention.scaled_dot_product import (
    cached_attention,
    grouped_attention,
)
from tf_transformer.functional.tensors import shape_of
from tf_transformer.layers.base_layer import NotesLayer, attributes
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.layers.positions import part_config, with_part


def check_heads(d_model, num_heads, key_dim, num_key_value_heads, share_qk):
    """Check the sizes of the heads of attention."""
    if num_heads < 1 or (key_dim is None and d_model % num_heads):
        got = f"d_model={d_model} and num_heads={num_heads}"
        remedy = "Change one, or set key_dim, the width of a head."
        expected = "d_model to be a multiple of num_heads"
        raise ArgumentError("d_model, num_heads", expected, got, remedy)
    check(key_dim is None or key_dim >= 1, "key_dim", "at least 1", key_dim)
    groups = num_heads if num_key_value_heads is None else num_key_value_heads
    if groups < 1 or num_heads % groups:
        expected = f"a divisor of num_heads={num_heads}, each head of keys for equally many queries"
        raise ArgumentError("num_key_value_heads", expected, num_key_value_heads)
    if share_qk and groups != num_heads:
        got = f"num_heads={num_heads} and num_key_value_heads={num_key_value_heads}"
        raise ArgumentError("share_qk", "as many heads of keys as of queries", got)


def check_bias(name, use_bias):
    """Check which projections of attention have a bias."""
    check(use_bias in (True, False, "qkv"), name, 'True, False or "qkv"', f"{use_bias!r}")
    return use_bias


def bias_of(positions, queries, keys, bias=None, causal=False):
    """The bias of the attention scores: the terms of the positions, or the given `bias`."""
    if positions is None:
        return bias
    by_distance = positions.by_distance(queries, shape_of(keys)[2], causal)
    if by_distance is not None and bias is not None:
        expected = f"None, since {type(positions).__name__} adds its own to the scores"
        remedy = "Pass a mask, or add yours in a part of `layers.positions`."
        raise ArgumentError("bias", expected, remedy=remedy)
    return bias if by_distance is None else by_distance


@keras.saving.register_keras_serializable(package="tf_transformer")
class MultiHeadAttention(NotesLayer, keras.layers.Layer):
    """N parallel attention heads, each on its own H-wide projection of the input.

    Concat(head_1, ..., head_N) W_O with head_n = Attention(Q W_Q, K W_K, V W_V),
    "Attention Is All You Need", section 3.2.2.

    Args:
        d_model: int, the width D of queries and output.
        num_heads: int, N; must divide `d_model` unless `key_dim` is set.
        positions: None, or the part that gives self-attention the order of tokens, for example
            `RotaryPositions()`; see `layers.positions`.
        key_dim: None for D / N, or int, the width H of a head.
        num_key_value_heads: None for N, or int G, which divides N: each head of keys and values
            serves N / G heads of queries. Ainslie et al. 2023, "GQA"; with 1, Shazeer 2019,
            "multi-query attention". The cache of a decoder has G heads.
        share_qk: bool, True projects queries and keys with the same weights, as in Kitaev et al.
            2020, "Reformer", section 2, without their normalization of keys.
        window: None, or int r: keys more than r positions away from a query are blocked, at a cost
            linear in T; "Attention Is All You Need", section 4.
        use_bias: whether the four projections have a bias, a bool; or "qkv", all but the output's.

    Call arguments:
        q, k, v: float tensors (B, T, D) and twice (B, S, any width).
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (B, N, T, S); see `functional.attention.masks.blocked_scores`.
        return_attention_weights: True computes all T x S scores at once; False returns None in
            place of the weights: pass it for long texts.
        bias: see `scaled_dot_product_attention`.
        causal: bool, True also blocks every key that comes after its query, without a T x S mask.
        k_mask, v_mask: None, or bool tensors (B, S), False for padding, which is blocked as well;
            by default the Keras masks of `k` and `v`.

    Returns:
        `(output, attention_weights)`: (B, T, D) and (B, N, T, S) or None. The output inherits the
        Keras mask of `q`, which blocks nothing.

    Raises:
        ValueError: If the numbers of heads do not fit, an input is not of rank 3, the mask has an
            integer dtype or does not broadcast, or `bias` and `positions` both add to the scores.

    Example:
        >>> layer = MultiHeadAttention(d_model=8, num_heads=2)
        >>> output, weights = layer(tf.ones((1, 3, 8)), tf.ones((1, 5, 8)), tf.ones((1, 5, 8)))
        >>> output.shape.as_list(), weights.shape.as_list()
        ([1, 3, 8], [1, 2, 3, 5])
    """

    def __init__(
        self,
        d_model,
        num_heads,
        *,
        positions=None,
        key_dim=None,
        num_key_value_heads=None,
        share_qk=False,
        window=None,
        use_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_heads(d_model, num_heads, key_dim, num_key_value_heads, share_qk)
        self.d_model, self.num_heads = d_model, num_heads
        self.positions = positions
        self.key_dim = key_dim or d_model // num_heads
        self.num_key_value_heads = num_key_value_heads or num_heads
        self.share_qk, self.window, self.use_bias = share_qk, window, use_bias
        width, shared = num_heads * self.key_dim, self.num_key_value_heads * self.key_dim
        options = {"use_bias": check_bias("use_bias", use_bias) is not False}
        options["dtype"] = self.dtype_policy
        self.wq = FlatDense(width, name="wq", **options)
        self.wk = self.wq if share_qk else FlatDense(shared, name="wk", **options)
        self.wv = FlatDense(shared, name="wv", **options)
        self.dense = FlatDense(d_model, name="dense", **{**options, "use_bias": use_bias is True})

    def build(self, q_shape, k_shape, v_shape):
        self.wq.build(q_shape)
        if not self.share_qk:
            self.wk.build(k_shape)
        self.wv.build(v_shape)
        self.dense.build((*q_shape[:-1], self.num_heads * self.key_dim))
        if self.positions is not None and not self.positions.built:
            self.positions.build((None, self.num_heads, None, self.key_dim))

    def call(
        self,
        q,
        k,
        v,
        mask=None,
        return_attention_weights=True,
        bias=None,
        causal=False,
        *,
        k_mask=None,
        v_mask=None,
    ):
        # Here, not in `build`: once built, a layer no longer checks shapes.
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if len(tensor.shape) != 3:
                raise ArgumentError(name, "(batch, length, width)", f"shape {tuple(tensor.shape)}")
        if not k.shape[:-1].is_compatible_with(v.shape[:-1]):
            got = f"k {tuple(k.shape)} and v {tuple(v.shape)}"
            raise ArgumentError("k, v", "one value for each key", got)
        mask = with_key_masks(mask, k, k_mask, v_mask)
        keys, values = self.keys_values(k, v)
        return self.attend(q, keys, values, mask, return_attention_weights, bias, causal)

    def keys_values(self, k, v):
        """Project keys and values (B, S, width) to heads (B, G, S, H), for a decoder to cache."""
        batch_size = tf.shape(k)[0]
        keys = self._placed(self.split_heads(self.wk(k), batch_size), tf.range(tf.shape(k)[1]))
        return keys, self.split_heads(self.wv(v), batch_size)

    def attend(
        self, q, keys, values, mask=None, return_attention_weights=True, bias=None, causal=False
    ):
        """Attend from `q` (B, T, D), as `call`, to keys and values returned by `keys_values`."""
        batch_size, length = tf.unstack(tf.shape(q)[:2])
        queries = self._placed(self.split_heads(self.wq(q), batch_size), tf.range(length))
        heads, weights = grouped_attention(
            queries,
            keys,
            values,
            self.num_heads // self.num_key_value_heads,
            mask,
            bias=bias_of(self.positions, queries, keys, bias, causal),
            causal=causal,
            window=self.window,
            return_attention_weights=return_attention_weights,
        )
        return self._join_heads(heads, batch_size), weights

    def empty_cache(self, batch_size, slots):
        """Create the cache of `step`, two tensors of zeros (B, G, C, H); B, C: int or int32 ()."""
        shape = (batch_size, self.num_key_value_heads, slots, self.key_dim)
        empty = tf.zeros(shape, self.compute_dtype)
        return empty, empty

    def step(self, x, cache, slot, mask=None, token_positions=None):
        """Attend from new positions to themselves and to cached ones.

        Args:
            x: float tensor (B, T, D), the new positions.
            cache: from `empty_cache`, then from the last `step`: two tensors (B, G, C, H).
            slot: scalar int32 tensor, the first of the T slots of the cache that are written to.
            mask: None, or bool tensor that broadcasts to (B, N, T, C), True = may attend.
            token_positions: a pair, the positions of the new tokens and of the tokens in the slots,
                int32 (T,) and (C,); by default a token's position is its slot.

        Returns `(output, cache)`: (B, T, D), without a mask as in `call` with `causal=True`, and
        the cache with the new keys and values.
        """
        batch_size, length = tf.unstack(tf.shape(x)[:2])
        if token_positions is None:
            token_positions = (slot + tf.range(length), tf.range(tf.shape(cache[0])[2]))
        new, slots = (tf.cast(positions, tf.int32) for positions in token_positions)  # (T,), (C,)
        q, keys = (
            self._placed(self.split_heads(project(x), batch_size), new)
            for project in (self.wq, self.wk)
        )
        values = self.split_heads(self.wv(x), batch_size)
        bias = bias_of(self.positions, q, cache[0], None, causal=True)
        distances = slots - tf.expand_dims(new, 1)  # (T, C)
        heads, cache = cached_attention(
            q, keys, values, cache, slot, mask, bias, distances, window=self.window
        )
        return self._join_heads(heads, batch_size), cache

    def _placed(self, heads, positions):
        return heads if self.positions is None else self.positions.rotate(heads, positions)

    def split_heads(self, x, batch_size):
        """Split the last axis into heads: (B, T, N * H) -> (B, N, T, H)."""
        num_heads = x.shape[-1] // self.key_dim  # keys and values may have fewer than queries
        # T is explicit where the notes use -1, which cannot be inferred for an empty batch.
        x = tf.reshape(x, (batch_size, tf.shape(x)[1], num_heads, self.key_dim))
        return tf.transpose(x, (0, 2, 1, 3))  # (B, N, T, H)

    def _join_heads(self, heads, batch_size):
        heads = tf.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
        width = self.num_heads * self.key_dim
        return self.dense(tf.reshape(heads, (batch_size, tf.shape(heads)[1], width)))  # (B, T, D)

    def get_config(self):
        names = ("d_model", "num_heads", "key_dim", "num_key_value_heads", "share_qk", "window")
        own = {**attributes(self, *names, "use_bias"), "positions": part_config(self.positions)}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))
