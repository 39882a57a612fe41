"""One layer of the complex encoder.

Axes: B batch, T length, D model width.
"""

import keras

from tf_transformer.layers.complex.complex_dropout import ComplexDropout
from tf_transformer.layers.complex.complex_feed_forward import ComplexFeedForward
from tf_transformer.layers.complex.complex_layer import ComplexLayer
from tf_transformer.layers.complex.complex_layer_norm import ComplexLayerNorm
from tf_transformer.layers.complex.complex_multi_head_attention import ComplexMultiHeadAttention
from tf_transformer.layers.feed_forwards.network import check_width


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexEncoderLayer(ComplexLayer):
    """Complex self-attention, then a complex feed-forward network, each with "add and norm".

    out = Norm(x + Dropout(Sublayer(x))) twice, as in `EncoderLayer`, with the complex sublayers of
    Wang et al. 2020, "Encoding Word Order in Complex Embeddings", appendix B.

    Args:
        d_model: int, model width D.
        num_heads: int, number of heads; must divide `d_model`.
        dff: int, inner width of the feed-forward network.
        rate: float, dropout rate on the output of each sublayer.
        activation: Keras activation of the feed-forward network, applied to both parts separately.
        epsilon: float, added to the variances in normalisation.

    Call arguments:
        x: complex tensor (B, T, D), or a real one.
        training: bool or None; dropout is only applied if true.
        mask: see `ComplexMultiHeadAttention`.
        x_mask: None, or bool tensor (B, T), False for padding, which is blocked as well; by default
            the Keras mask of `x`, which is also that of the output.

    Returns:
        (B, T, D), complex64, or complex128 under the policy "float64".

    Raises:
        ValueError: If the width of `x` is not `d_model`, or `dff` is not a positive integer; see
            also `ComplexMultiHeadAttention`.

    Example:
        >>> layer = ComplexEncoderLayer(8, 2, 32)
        >>> layer(tf.ones((1, 3, 8), tf.complex64), False, None).shape.as_list()
        [1, 3, 8]
    """

    def __init__(
        self, d_model, num_heads, dff, rate=0.1, *, activation="relu", epsilon=1e-6, **kwargs
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.rate = rate
        self.activation = keras.activations.get(activation)
        self.epsilon = epsilon
        self.mha = ComplexMultiHeadAttention(d_model, num_heads, name="mha", dtype=dtype)
        self.ffn = ComplexFeedForward(d_model, dff, self.activation, name="ffn", dtype=dtype)
        self.layernorm1 = ComplexLayerNorm(epsilon, name="layernorm1", dtype=dtype)
        self.layernorm2 = ComplexLayerNorm(epsilon, name="layernorm2", dtype=dtype)
        self.dropout1 = ComplexDropout(rate, name="dropout1", dtype=dtype)
        self.dropout2 = ComplexDropout(rate, name="dropout2", dtype=dtype)

    def build(self, x_shape):
        check_width(x_shape, self.d_model)
        self.mha.build(x_shape, x_shape, x_shape)
        for layer in (self.ffn, self.layernorm1, self.layernorm2, self.dropout1, self.dropout2):
            layer.build(x_shape)

    def call(self, x, training=None, mask=None, *, x_mask=None):
        x = self.as_complex(x)
        attn_output, _ = self.mha(x, x, x, mask, False, k_mask=x_mask, v_mask=x_mask)
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
        }
