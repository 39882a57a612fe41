"""One layer of the decoder.

Axes: B batch, T target length, S source length, C cache slots, D model width, N heads, H = D / N
head width.
"""

import keras

from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.feed_forward import check_width, point_wise_feed_forward_network
from tf_transformer.layers.layer_norm import LayerNorm
from tf_transformer.layers.multi_head_attention import MultiHeadAttention
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.layers.positions.positions import part_config, with_part


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(NotesLayer, keras.layers.Layer):
    """Self-attention, attention to the encoder, feed-forward; each followed by "add and norm".

    "Attention Is All You Need", section 3.1, post-norm. Layer normalisation has epsilon 1e-6.

    Args:
        d_model: int, model width D.
        num_heads: int, number of heads; must divide `d_model`.
        dff: int, inner width of the feed-forward network.
        rate: float, dropout rate on the output of each sublayer.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        positions: None, or the part of self-attention that tells the order of tokens, see
            `layers.positions`.

    Call arguments:
        x: float tensor (B, T, D).
        enc_output: float tensor (B, S, D), the encoder's output.
        training: bool or None; dropout is only applied if true.
        look_ahead_mask: mask of the self-attention, see `MultiHeadAttention`.
        padding_mask: mask of the attention to the encoder.
        return_attention_weights: False returns None in place of both weights.
        causal: True blocks the future in the self-attention without a T x T mask;
            `look_ahead_mask` then only needs to block padding.

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

    def __init__(self, d_model, num_heads, dff, rate=0.1, *, jit="auto", positions=None, **kwargs):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.rate = rate
        self.jit = jit
        self.mha1 = MultiHeadAttention(
            d_model, num_heads, jit=jit, positions=positions, name="mha1", dtype=dtype
        )
        self.mha2 = MultiHeadAttention(d_model, num_heads, jit=jit, name="mha2", dtype=dtype)
        self.ffn = point_wise_feed_forward_network(d_model, dff, name="ffn", dtype=dtype)
        self.layernorm1 = LayerNorm(name="layernorm1", dtype=dtype)
        self.layernorm2 = LayerNorm(name="layernorm2", dtype=dtype)
        self.layernorm3 = LayerNorm(name="layernorm3", dtype=dtype)
        self.dropout1 = Dropout(rate, name="dropout1", dtype=dtype)
        self.dropout2 = Dropout(rate, name="dropout2", dtype=dtype)
        self.dropout3 = Dropout(rate, name="dropout3", dtype=dtype)

    def build(self, x_shape, enc_output_shape):
        check_width(x_shape, self.d_model)
        self.mha1.build(x_shape, x_shape, x_shape)
        self.mha2.build(x_shape, enc_output_shape, enc_output_shape)
        self.ffn.build(x_shape)
        for layer in (self.layernorm1, self.layernorm2, self.layernorm3):
            layer.build(x_shape)
        for layer in (self.dropout1, self.dropout2, self.dropout3):
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
    ):
        wanted = return_attention_weights
        return self._three_sublayers(
            x,
            lambda q: self.mha1(q, q, q, look_ahead_mask, wanted, causal=causal),
            lambda q: self.mha2(q, enc_output, enc_output, padding_mask, wanted),
            training,
        )

    def step(self, x, cache, memory, slot, mask=None, padding_mask=None, at=None):
        """Decode new positions against cached keys and values, with the same result as `call`.

        Args:
            x: float tensor (B, T, D), the new positions.
            cache: two tensors (B, N, C, H), keys and values in C slots.
            memory: two tensors (B, N, S, H), the encoder's output through `mha2.keys_values`.
            slot, mask: see `cached_attention`.
            padding_mask: mask of the attention to the encoder.
            at: see `MultiHeadAttention.step`.

        Returns:
            `(out3, cache)`: (B, T, D) and the cache with the new keys and values.
        """
        attn1, cache = self.mha1.step(x, cache, slot, mask, at)
        out, _, _ = self._three_sublayers(
            x,
            lambda q: (attn1, None),
            lambda q: self.mha2.attend(q, *memory, padding_mask, return_attention_weights=False),
            training=False,
        )
        return out, cache

    def _three_sublayers(self, x, attend_to_self, attend_to_encoder, training):
        attn1, weights_block1 = attend_to_self(x)
        out1 = self.layernorm1(x + self.dropout1(attn1, training=training))
        attn2, weights_block2 = attend_to_encoder(out1)
        out2 = self.layernorm2(out1 + self.dropout2(attn2, training=training))
        ffn_output = self.ffn(out2)
        out3 = self.layernorm3(out2 + self.dropout3(ffn_output, training=training))
        return out3, weights_block1, weights_block2

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "rate": self.rate,
            "jit": self.jit,
            "positions": part_config(self.mha1.positions),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))
