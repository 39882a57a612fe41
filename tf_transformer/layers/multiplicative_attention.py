"""Multiplicative attention.

Axes: T target (query) length, S source (key) length, D width of queries and keys. Leading axes
(batch, heads) are "...".
"""

import keras

from tf_transformer.functional.scores.multiplicative import multiplicative_attention
from tf_transformer.layers.scored_attention import ScoredAttention


@keras.saving.register_keras_serializable(package="tf_transformer")
class MultiplicativeAttention(ScoredAttention, keras.layers.Layer):
    """Attention whose scores are dot products, without a scale; it has no weights.

    score(q, k) = q . k, "dot" in Luong et al. 2015, "Effective Approaches to Attention-based Neural
    Machine Translation", section 3.1.

    Call arguments:
        q: float tensor (..., T, D).
        k: float tensor (..., S, D).
        v: float tensor (..., S, D_v).
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        return_attention_weights: False returns None instead of the weights, which are not kept.
        causal: bool, True also blocks every key that comes after its query.
        k_mask, v_mask: None, or bool tensors (..., S), False for padding, which is blocked as well;
            by default the Keras masks of `k` and `v`.

    Returns:
        `(output, attention_weights)`: (..., T, D_v) and (..., T, S) or None. The Keras mask of
        `q` is that of the output; it blocks nothing.

    Raises:
        ValueError: If queries and keys have different widths, other sizes do not match, or the mask
            has an integer dtype or does not broadcast.

    Example:
        >>> layer = MultiplicativeAttention()
        >>> output, weights = layer(tf.ones((1, 3, 4)), tf.ones((1, 5, 4)), tf.ones((1, 5, 6)))
        >>> output.shape.as_list(), weights.shape.as_list()
        ([1, 3, 6], [1, 3, 5])
    """

    def build(self, q_shape, k_shape, v_shape):
        pass  # no weights; Keras gives the shape of each argument

    def _attend(self, q, k, v, **options):
        return multiplicative_attention(q, k, v, **options)
