"""Multi-head attention between complex tensors.

Axes: B batch, T target (query) length, S source (key) length, D model width, N heads,
H = D / N head width.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.complex_attention import complex_attention
from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.layers.complex.complex_dense import ComplexDense
from tf_transformer.layers.complex.complex_layer import ComplexLayer, check_sizes


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexMultiHeadAttention(ComplexLayer):
    """N parallel attention heads with complex projections and real weights.

    Concat(head_1, ..., head_N) W_O with head_n = softmax(|Q W_Q (K W_K)^H| / sqrt(H)) V W_V, Wang
    et al. 2020, "Encoding Word Order in Complex Embeddings", equations 13 and 14; see
    `complex_attention` for the score, and for what differs from the paper.

    Args:
        d_model: int, the width D of queries and output.
        num_heads: int, N; must divide `d_model`.

    Call arguments:
        q, k, v: complex tensors, or real ones, (B, T, D) and twice (B, S, any width).
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (B, N, T, S); see `functional.attention.masks.blocked_scores`.
        return_attention_weights: False returns None instead of the weights; then long texts are
            computed in blocks, see `choose_plan`.
        k_mask, v_mask: see `MultiHeadAttention`.

    Returns:
        `(output, attention_weights)`: (B, T, D), complex64, and (B, N, T, S), float32, or None;
        complex128 and float64 under the policy "float64".

    Raises:
        ValueError: If `d_model` is not divisible by `num_heads`, an input is not of rank 3, or the
            mask has an integer dtype or does not broadcast.

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
            raise ArgumentError(
                "d_model, num_heads",
                "d_model to be a multiple of num_heads",
                f"d_model={d_model} and num_heads={num_heads}",
            )
        self.d_model = d_model
        self.num_heads = num_heads
        self.wq = ComplexDense(d_model, name="wq", dtype=self.dtype_policy)
        self.wk = ComplexDense(d_model, name="wk", dtype=self.dtype_policy)
        self.wv = ComplexDense(d_model, name="wv", dtype=self.dtype_policy)
        self.dense = ComplexDense(d_model, name="dense", dtype=self.dtype_policy)

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
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
        }


def _sizes(x):
    """Batch size and length."""
    return tf.unstack(tf.shape(x)[:2])
