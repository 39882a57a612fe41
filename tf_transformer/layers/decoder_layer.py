"""One layer of the decoder.

Axes: B batch, T target length, S source length, D model width, N heads, G heads of keys and values,
H head width.
"""

import functools

import keras

from tf_transformer.layers.architecture import Architecture, with_architecture
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.feed_forwards.network import check_width
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.layers.positions.positions import part_config, with_part


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(NotesLayer, keras.layers.Layer):
    """Self-attention, attention to the encoder, feed-forward; each followed by "add and norm".

    "Attention Is All You Need", section 3.1, post-norm.

    Args:
        d_model: int, model width D.
        num_heads: int, number of heads; must divide `d_model` unless `key_dim` is set.
        dff: int, inner width of the feed-forward network.
        rate: float, dropout rate on the output of each sublayer.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        architecture: None for that of the paper, or an `Architecture`.
        positions: the part of self-attention that tells the order of tokens, see
            `layers.positions`; None for a new one of the architecture.
        cross_heads: None for `num_heads`; or int, the heads of the attention to the encoder.
        key_dim: None for that of the architecture; or int, the width of a head.

    Call arguments:
        x: float tensor (B, T, D).
        enc_output: float tensor (B, S, D), the encoder's output.
        training: bool or None; dropout is only applied if true.
        look_ahead_mask: mask of the self-attention, see `MultiHeadAttention`.
        padding_mask: mask of the attention to the encoder.
        return_attention_weights: False returns None in place of both weights.
        causal: True blocks the future in the self-attention without a T x T mask;
            `look_ahead_mask` then only needs to block padding.
        tokens: None, or bool tensor (B, T), False for padding, for a norm over the batch.
        x_mask, enc_output_mask: None, or bool tensors (B, T) and (B, S), False for padding, which
            is blocked as well; by default the Keras masks of `x`, which is also that of `out3`, and
            of `enc_output`. Without `tokens`, a norm over the batch takes `x_mask`.

    Returns:
        `(out3, weights_block1, weights_block2)`: (B, T, D), (B, N, T, T), (B, N, T, S).

    Raises:
        ValueError: If the width of `x` is not `d_model`, so it cannot be added to the sublayer's
            output; see also `MultiHeadAttention`.

    Example:
        >>> layer = DecoderLayer(8, 2, 32)
        >>> out, block1, block2 = layer(tf.ones((1, 3, 8)), tf.ones((1, 5, 8)), False, None, None)
        >>> out.shape.as_list(), block2.shape.as_list()
        ([1, 3, 8], [1, 2, 3, 5])
    """

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        rate=0.1,
        *,
        jit="auto",
        architecture=None,
        positions=None,
        cross_heads=None,
        key_dim=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.d_model = d_model
        self.num_heads = num_heads
        self.cross_heads = cross_heads or num_heads
        self.dff = dff
        self.rate = rate
        self.jit = jit
        self.architecture = architecture
        parts = architecture or Architecture()
        if positions is None:
            positions = parts.positions.copy(dtype).for_layer()
        self.residual = parts.residual
        options = {"key_dim": key_dim, "jit": jit, "dtype": dtype}
        self.mha1 = parts.attention(d_model, num_heads, positions=positions, name="mha1", **options)
        self.mha2 = parts.attention(
            d_model, self.cross_heads, to_self=False, name="mha2", **options
        )
        self.ffn_before, self.ffn = parts.feed_forward.networks(d_model, dff, dtype)
        self.layernorm1, self.layernorm2, self.layernorm3 = (
            parts.new_norm(f"layernorm{n}", dtype) for n in (1, 2, 3)
        )
        self.dropout1, self.dropout2, self.dropout3 = (
            Dropout(rate, name=f"dropout{n}", dtype=dtype) for n in (1, 2, 3)
        )
        if self.ffn_before is not None:
            self.layernorm0 = parts.new_norm("layernorm0", dtype)
            self.dropout0 = Dropout(rate, name="dropout0", dtype=dtype)

    def build(self, x_shape, enc_output_shape):
        check_width(x_shape, self.d_model)
        self.mha1.build(x_shape, x_shape, x_shape)
        self.mha2.build(x_shape, enc_output_shape, enc_output_shape)
        self.ffn.build(x_shape)
        for layer in (self.layernorm1, self.layernorm2, self.layernorm3):
            layer.build(x_shape)
        for layer in (self.dropout1, self.dropout2, self.dropout3):
            layer.build(x_shape)
        if self.ffn_before is not None:
            for layer in (self.ffn_before, self.layernorm0, self.dropout0):
                layer.build(x_shape)

    def call(
        self,
        x,
        enc_output,
        training=None,
        look_ahead_mask=None,
        padding_mask=None,
        return_attention_weights=True,
        causal=False,
        *,
        tokens=None,
        x_mask=None,
        enc_output_mask=None,
    ):
        wanted = return_attention_weights
        own = {"k_mask": x_mask, "v_mask": x_mask}
        other = {"k_mask": enc_output_mask, "v_mask": enc_output_mask}
        return self._sublayers(
            x,
            lambda q: self.mha1(q, q, q, look_ahead_mask, wanted, causal=causal, **own),
            lambda q: self.mha2(q, enc_output, enc_output, padding_mask, wanted, **other),
            training,
            x_mask if tokens is None else tokens,
        )

    def step(self, x, cache, memory, slot, mask=None, padding_mask=None, at=None):
        """Decode new positions against cached keys and values, with the same result as `call`.

        Args:
            x: float tensor (B, T, D), the new positions.
            cache: from `mha1.empty_cache`, then from the last `step`.
            memory: two tensors (B, G, S, H), the encoder's output through `mha2.keys_values`.
            slot, mask: see `cached_attention`.
            padding_mask: mask of the attention to the encoder.
            at: see `MultiHeadAttention.step`.

        Returns:
            `(out3, cache)`: (B, T, D) and the cache with the new keys and values.
        """
        out, cache, _ = self._sublayers(
            x,
            lambda q: self.mha1.step(q, cache, slot, mask, at),
            lambda q: self.mha2.attend(q, *memory, padding_mask, return_attention_weights=False),
        )
        return out, cache

    def _sublayers(self, x, attend_to_self, attend_to_encoder, training=False, tokens=None):
        join = functools.partial(self.residual, training=training, tokens=tokens)
        if self.ffn_before is not None:
            x, _ = join(x, lambda y: (self.ffn_before(y), None), self.layernorm0, self.dropout0)
        x, other1 = join(x, attend_to_self, self.layernorm1, self.dropout1)
        x, other2 = join(x, attend_to_encoder, self.layernorm2, self.dropout2)
        x, _ = join(x, lambda y: (self.ffn(y), None), self.layernorm3, self.dropout3)
        return x, other1, other2

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "rate": self.rate,
            "jit": self.jit,
            "architecture": self.architecture and self.architecture.to_dict(),
            "positions": part_config(self.mha1.positions),
            "cross_heads": self.cross_heads,
            "key_dim": self.mha1.key_dim,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(with_architecture(config)))
