"""One layer of the encoder.

Axes: B batch, T length, D model width.
"""

import keras

from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.feed_forward import check_width, point_wise_feed_forward_network
from tf_transformer.layers.layer_norm import LayerNorm
from tf_transformer.layers.multi_head_attention import MultiHeadAttention
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.layers.positions.positions import part_config, with_part


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(NotesLayer, keras.layers.Layer):
    """Self-attention, then a feed-forward network, each followed by "add and norm".

    out = LayerNorm(x + Dropout(Sublayer(x))) twice (post-norm), "Attention Is All You Need",
    section 3.1.

    Args:
        d_model: int, model width D.
        num_heads: int, number of heads; must divide `d_model`.
        dff: int, inner width of the feed-forward network.
        rate: float, dropout rate on the output of each sublayer.
        activation: Keras activation of the feed-forward network; BERT uses "gelu".
        epsilon: float, added to the variance in layer normalisation; BERT uses 1e-12.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        positions: None, or the part of self-attention that tells the order of tokens, see
            `layers.positions`.

    Call arguments:
        x: float tensor (B, T, D).
        training: bool or None; dropout is only applied if true.
        mask: None, float (1.0 = blocked) or bool (True = may attend), see `MultiHeadAttention`.

    Returns:
        (B, T, D).

    Raises:
        ValueError: If the width of `x` is not `d_model`, so it cannot be added to the sublayer's
            output; see also `MultiHeadAttention`.

    Example:
        >>> EncoderLayer(8, 2, 32)(tf.ones((1, 3, 8)), False, None).shape.as_list()
        [1, 3, 8]
    """

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        rate=0.1,
        *,
        activation="relu",
        epsilon=1e-6,
        jit="auto",
        positions=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.rate = rate
        self.activation = keras.activations.get(activation)
        self.epsilon = epsilon
        self.jit = jit
        self.mha = MultiHeadAttention(
            d_model, num_heads, jit=jit, positions=positions, name="mha", dtype=dtype
        )
        self.ffn = point_wise_feed_forward_network(
            d_model, dff, self.activation, name="ffn", dtype=dtype
        )
        self.layernorm1 = LayerNorm(epsilon, name="layernorm1", dtype=dtype)
        self.layernorm2 = LayerNorm(epsilon, name="layernorm2", dtype=dtype)
        self.dropout1 = Dropout(rate, name="dropout1", dtype=dtype)
        self.dropout2 = Dropout(rate, name="dropout2", dtype=dtype)

    def build(self, x_shape):
        check_width(x_shape, self.d_model)
        self.mha.build(x_shape, x_shape, x_shape)
        for layer in (self.ffn, self.layernorm1, self.layernorm2, self.dropout1, self.dropout2):
            layer.build(x_shape)

    def call(self, x, training=None, mask=None):
        attn_output, _ = self.mha(x, x, x, mask, return_attention_weights=False)
        out1 = self.layernorm1(x + self.dropout1(attn_output, training=training))
        ffn_output = self.ffn(out1)
        return self.layernorm2(out1 + self.dropout2(ffn_output, training=training))

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "rate": self.rate,
            "activation": keras.activations.serialize(self.activation),
            "epsilon": self.epsilon,
            "jit": self.jit,
            "positions": part_config(self.mha.positions),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))
