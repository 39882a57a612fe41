"""The encoder of complex embeddings, after Wang et al. 2020, see `layers.complex`.

Axes: B batch, T length, S source length, N heads, D model width, H head width.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.complex_attention import complex_attention
from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.layers.base_layer import TakesIds, attributes
from tf_transformer.layers.complex import (
    ComplexDense,
    ComplexDropout,
    ComplexEmbedding,
    ComplexFeedForward,
    ComplexLayer,
    ComplexLayerNorm,
    check_sizes,
)
from tf_transformer.layers.feed_forwards import check_width


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexMultiHeadAttention(ComplexLayer):
    """N parallel attention heads with complex projections and real weights.

    Concat(head_1, ..., head_N) W_O with head_n = softmax(|Q W_Q (K W_K)^H| / sqrt(H)) V W_V, Wang
    et al. 2020, equations 13 and 14. Turning query and key by one angle changes no score.

    Args:
        d_model, num_heads: ints, the width D of queries and output, and N, which must divide it.

    Call arguments:
        q, k, v: complex or real tensors: q (B, T, D), k and v (B, S, any width).
        mask, k_mask, v_mask: see `MultiHeadAttention`.
        return_attention_weights: False returns None instead; long texts are computed in blocks.

    Returns:
        `(output, attention_weights)`: complex64 (B, T, D), and float32 (B, N, T, S) or None.

    Raises:
        ValueError: If `num_heads` does not divide `d_model`, an input is not of rank 3, or the mask
            has an integer dtype or does not broadcast.

    Example:
        >>> layer, x = ComplexMultiHeadAttention(8, 2), tf.ones((1, 3, 8), tf.complex64)
        >>> output, weights = layer(x, x, x)
        >>> output.dtype, weights.dtype, weights.shape.as_list()
        (tf.complex64, tf.float32, [1, 2, 3, 3])
    """

    def __init__(self, d_model, num_heads, **kwargs):
        super().__init__(**kwargs)
        check_sizes(d_model=d_model, num_heads=num_heads)
        if d_model % num_heads:
            got = f"d_model={d_model} and num_heads={num_heads}"
            raise ArgumentError("d_model, num_heads", "d_model to be a multiple of num_heads", got)
        self.d_model, self.num_heads = d_model, num_heads
        self.wq, self.wk, self.wv, self.dense = (
            ComplexDense(d_model, name=name, dtype=self.dtype_policy)
            for name in ("wq", "wk", "wv", "dense")
        )

    def build(self, q_shape, k_shape, v_shape):
        self.wq.build(q_shape)
        self.wk.build(k_shape)
        self.wv.build(v_shape)
        self.dense.build((*q_shape[:-1], self.d_model))

    def call(self, q, k, v, mask=None, return_attention_weights=True, *, k_mask=None, v_mask=None):
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if len(tensor.shape) != 3:
                raise ArgumentError(name, "(batch, length, width)", f"shape {tuple(tensor.shape)}")
        heads, weights = complex_attention(
            self._split_heads(self.wq(q)),
            self._split_heads(self.wk(k)),
            self._split_heads(self.wv(v)),
            with_key_masks(mask, k, k_mask, v_mask),
            return_attention_weights=return_attention_weights,
        )
        heads = tf.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
        return self.dense(tf.reshape(heads, (*_sizes(heads), self.d_model))), weights

    def _split_heads(self, x):
        x = tf.reshape(x, (*_sizes(x), self.num_heads, self.d_model // self.num_heads))
        return tf.transpose(x, (0, 2, 1, 3))  # (B, N, T, H)

    def get_config(self):
        return {**super().get_config(), **attributes(self, "d_model", "num_heads")}


def _sizes(x):
    """Batch size and length."""
    return tf.unstack(tf.shape(x)[:2])


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexEncoderLayer(ComplexLayer):
    """Complex self-attention, then a complex feed-forward network, each with "add and norm".

    out = Norm(x + Dropout(Sublayer(x))) twice, as in `EncoderLayer`; Wang et al. 2020, appendix B.

    Args:
        d_model, num_heads: see `ComplexMultiHeadAttention`; a ValueError is raised if `x` has
            another width.
        dff, activation: see `ComplexFeedForward`.
        rate: float, dropout rate on the output of each sublayer.
        epsilon: float, added to the variances in normalization.

    Call arguments:
        x: complex or real tensor (B, T, D); returns complex64 (complex128 in float64).
        training, mask, x_mask: see `EncoderLayer`.

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
        self.d_model, self.num_heads, self.dff = d_model, num_heads, dff
        self.rate, self.epsilon = rate, epsilon
        self.activation = keras.activations.get(activation)
        self.mha = ComplexMultiHeadAttention(d_model, num_heads, name="mha", dtype=dtype)
        self.ffn = ComplexFeedForward(d_model, dff, self.activation, name="ffn", dtype=dtype)
        self.layernorm1 = ComplexLayerNorm(epsilon, name="layernorm1", dtype=dtype)
        self.layernorm2 = ComplexLayerNorm(epsilon, name="layernorm2", dtype=dtype)
        self.dropout1 = ComplexDropout(rate, name="dropout1", dtype=dtype)
        self.dropout2 = ComplexDropout(rate, name="dropout2", dtype=dtype)

    def build(self, x_shape):
        check_width(x_shape, self.d_model)
        self.mha.build(x_shape, x_shape, x_shape)
        self._build_rest(x_shape)

    def call(self, x, training=None, mask=None, *, x_mask=None):
        x = self.as_complex(x)
        attn_output, _ = self.mha(x, x, x, mask, False, k_mask=x_mask, v_mask=x_mask)
        out1 = self.layernorm1(x + self.dropout1(attn_output, training=training))
        ffn_output = self.ffn(out1)
        return self.layernorm2(out1 + self.dropout2(ffn_output, training=training))

    def get_config(self):
        activation = keras.activations.serialize(self.activation)
        fields = attributes(self, "d_model", "num_heads", "dff", "rate", "epsilon")
        return {**super().get_config(), **fields, "activation": activation}


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexEncoder(TakesIds, ComplexLayer):
    """A stack of complex encoder layers over a complex embedding.

    Wang et al. 2020, appendix B. Positions are in the phases of the embedding, without a limit.

    Args:
        num_layers: int, number of layers; if it is not positive, a ValueError is raised.
        d_model, num_heads, dff, rate: see `ComplexEncoderLayer`.
        input_vocab_size: int, size of the vocabulary.
        amplitudes, frequencies, phases: str, see `ComplexEmbedding`.

    Call arguments:
        x: integer tensor (B, S), token ids, 0 = padding.
        mask: see `ComplexMultiHeadAttention`; usually `create_padding_mask(x)`.
        training, x_mask: see `ComplexEncoderLayer`.

    Returns:
        complex64 tensor (B, S, D); `ComplexToReal` converts it to real numbers.

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
        self.num_layers, self.d_model, self.num_heads = num_layers, d_model, num_heads
        self.dff, self.rate = dff, rate
        schemes = (amplitudes, frequencies, phases)
        self.embedding = ComplexEmbedding(
            input_vocab_size, d_model, *schemes, name="embedding", dtype=dtype
        )
        self.dropout = ComplexDropout(rate, name="dropout", dtype=dtype)
        self.enc_layers = [
            ComplexEncoderLayer(d_model, num_heads, dff, rate, name=f"layer{i}", dtype=dtype)
            for i in range(num_layers)
        ]

    def build(self, x_shape):
        self.embedding.build(x_shape)
        self._build_rest((*x_shape, self.d_model))

    def call(self, x, training=None, mask=None, *, x_mask=None):
        x = self.dropout(self.embedding(x), training=training)
        for layer in self.enc_layers:
            x = layer(x, training, mask, x_mask=x_mask)
        return x

    def get_config(self):
        embedding = self.embedding
        return {
            **super().get_config(),
            **attributes(self, "num_layers", "d_model", "num_heads", "dff", "rate"),
            "input_vocab_size": embedding.vocab_size,
            **attributes(embedding, "amplitudes", "frequencies", "phases"),
        }
