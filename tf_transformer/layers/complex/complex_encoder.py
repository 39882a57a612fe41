"""The complex encoder: embedding, N layers.

Axes: B batch, S source length, D model width.
"""

import keras

from tf_transformer.layers.complex.complex_dropout import ComplexDropout
from tf_transformer.layers.complex.complex_embedding import ComplexEmbedding
from tf_transformer.layers.complex.complex_encoder_layer import ComplexEncoderLayer
from tf_transformer.layers.complex.complex_layer import ComplexLayer, check_sizes
from tf_transformer.layers.takes_ids import TakesIds


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexEncoder(TakesIds, ComplexLayer):
    """A stack of complex encoder layers over a complex embedding.

    The Transformer encoder of Wang et al. 2020, "Encoding Word Order in Complex Embeddings",
    appendix B. Positions are in the phases of the embedding; there is no longest text.

    Args:
        num_layers: int, number of layers.
        d_model, num_heads, dff, rate: see `ComplexEncoderLayer`.
        input_vocab_size: int, size of the vocabulary.
        amplitudes, frequencies, phases: str, see `ComplexEmbedding`.

    Call arguments:
        x: integer tensor (B, S), token ids, 0 = padding.
        training: bool or None; dropout is only applied if true.
        mask: see `ComplexMultiHeadAttention`; usually `create_padding_mask(x)`.
        x_mask: None, or bool tensor (B, S), False for padding, which is blocked as well; by default
            the Keras mask of `x`, if the ids have one. It is also that of the output.

    Returns:
        (B, S, D), complex64, or complex128 under the policy "float64"; `ComplexToReal` makes real
        numbers of it.

    Raises:
        ValueError: If `num_layers` is not a positive integer; see also
            `ComplexEmbedding` and `ComplexEncoderLayer`.

    Example:
        >>> encoder = ComplexEncoder(2, 8, 2, 32, 11)
        >>> encoder(tf.constant([[5, 6, 2]])).shape.as_list()
        [1, 3, 8]
    """

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        input_vocab_size,
        rate=0.1,
        *,
        amplitudes="own",
        frequencies="own",
        phases="own",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(num_layers=num_layers, input_vocab_size=input_vocab_size)
        dtype = self.dtype_policy
        self.num_layers = num_layers
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.rate = rate
        self.embedding = ComplexEmbedding(
            input_vocab_size,
            d_model,
            amplitudes,
            frequencies,
            phases,
            name="embedding",
            dtype=dtype,
        )
        self.dropout = ComplexDropout(rate, name="dropout", dtype=dtype)
        self.enc_layers = [
            ComplexEncoderLayer(d_model, num_heads, dff, rate, name=f"layer{i}", dtype=dtype)
            for i in range(num_layers)
        ]

    def build(self, x_shape):
        self.embedding.build(x_shape)
        for layer in (self.dropout, *self.enc_layers):
            layer.build((*x_shape, self.d_model))

    def call(self, x, training=None, mask=None, *, x_mask=None):
        x = self.dropout(self.embedding(x), training=training)
        for layer in self.enc_layers:
            x = layer(x, training, mask, x_mask=x_mask)
        return x

    def get_config(self):
        embedding = self.embedding.get_config()
        schemes = ("amplitudes", "frequencies", "phases")
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "input_vocab_size": embedding["vocab_size"],
            "rate": self.rate,
            **{name: embedding[name] for name in schemes},
        }
