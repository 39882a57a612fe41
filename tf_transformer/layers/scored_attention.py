"""Attention layers with scores other than the scaled dot product.

Axes: T target (query) length, S source (key) length, D width of queries, D_k width of keys,
U units. Leading axes (batch, heads) are "...".
"""

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.functional.attention.scored import (
    additive_attention,
    bilinear_attention,
    multiplicative_attention,
)
from tf_transformer.layers.base_layer import NotesLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class ScoredAttention(NotesLayer, keras.layers.Layer):
    """Base of attention by a function `attend` of the inputs and the layer's weights."""

    def call(
        self,
        q,
        k,
        v,
        mask=None,
        return_attention_weights=True,
        causal=False,
        *,
        k_mask=None,
        v_mask=None,
    ):
        """See the subclasses."""
        mask = with_key_masks(mask, k, k_mask, v_mask)
        options = {"causal": causal, "return_attention_weights": return_attention_weights}
        return self.attend(q, k, v, *self.weights, mask=mask, **options)


@keras.saving.register_keras_serializable(package="tf_transformer")
class MultiplicativeAttention(ScoredAttention):
    """Attention whose scores are dot products, without a scale; it has no weights.

    score(q, k) = q . k, see `multiplicative_attention`.

    Call arguments:
        q, k, v: float tensors (..., T, D), (..., S, D) and (..., S, D_v).
        mask, return_attention_weights, causal, k_mask, v_mask: see `MultiHeadAttention`.

    Returns:
        `(output, attention_weights)`: (..., T, D_v) and (..., T, S) or None.

    Raises:
        ValueError: If queries and keys have different widths, other sizes do not match, or the mask
            has an integer dtype or does not broadcast.

    Example:
        >>> layer = MultiplicativeAttention()
        >>> output, weights = layer(tf.ones((1, 3, 4)), tf.ones((1, 5, 4)), tf.ones((1, 5, 6)))
        >>> output.shape.as_list(), weights.shape.as_list()
        ([1, 3, 6], [1, 3, 5])
    """

    attend = staticmethod(multiplicative_attention)

    def build(self, q_shape, k_shape, v_shape):
        pass  # no weights; Keras gives the shape of each argument


@keras.saving.register_keras_serializable(package="tf_transformer")
class BilinearAttention(ScoredAttention):
    """Attention whose scores are products with a learned matrix between query and key.

    score(q, k) = q^T W k, see `bilinear_attention`. Arguments, results and errors are those of
    `MultiplicativeAttention`, but keys may have a width of their own, (..., S, D_k); for widths
    that the layer was not built for, a ValueError is raised.

    Example:
        >>> layer = BilinearAttention()
        >>> output, _ = layer(tf.ones((1, 3, 8)), tf.ones((1, 5, 4)), tf.ones((1, 5, 6)))
        >>> output.shape.as_list()
        [1, 3, 6]
    """

    attend = staticmethod(bilinear_attention)

    def build(self, q_shape, k_shape, v_shape):
        # No autocast: the scores are computed in float32 under a mixed-precision policy.
        shape = q_shape[-1], k_shape[-1]
        self.kernel = self.add_weight(shape, name="kernel", autocast=False)


@keras.saving.register_keras_serializable(package="tf_transformer")
class AdditiveAttention(ScoredAttention):
    """Attention whose scores come from a network with one hidden layer.

    score(q, k) = w . tanh(q W + k U), see `additive_attention`. Arguments, results and errors are
    those of `BilinearAttention`. Differs from `keras.layers.AdditiveAttention`, which has w but no
    W and U, and takes `[q, v, k]`.

    Args:
        units: int, the width of the hidden layer; if it is not positive, a ValueError is raised.

    Example:
        >>> layer = AdditiveAttention(units=16)
        >>> output, _ = layer(tf.ones((1, 3, 8)), tf.ones((1, 5, 4)), tf.ones((1, 5, 6)))
        >>> output.shape.as_list()
        [1, 3, 6]
    """

    attend = staticmethod(additive_attention)

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(units, int) or units < 1:
            raise ArgumentError("units", "a positive integer", f"{units!r}")
        self.units = units

    def build(self, q_shape, k_shape, v_shape):
        shapes = {
            "query_kernel": (q_shape[-1], self.units),
            "key_kernel": (k_shape[-1], self.units),
            "score_vector": (self.units,),
        }
        self.query_kernel, self.key_kernel, self.score_vector = (
            self.add_weight(shape, name=name, autocast=False) for name, shape in shapes.items()
        )

    def get_config(self):
        return {**super().get_config(), "units": self.units}
