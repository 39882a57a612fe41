"""Bilinear attention.

Axes: T target (query) length, S source (key) length, D width of queries, D_k width of keys. Leading
axes (batch, heads) are "...".
"""

import keras

from tf_transformer.functional.scores.bilinear import bilinear_attention
from tf_transformer.layers.scored_attention import ScoredAttention


@keras.saving.register_keras_serializable(package="tf_transformer")
class BilinearAttention(ScoredAttention, keras.layers.Layer):
    """Attention whose scores are products with a learned matrix between query and key.

    score(q, k) = q^T W k, "general" in Luong et al. 2015, "Effective Approaches to Attention-based
    Neural Machine Translation", section 3.1.

    Call arguments:
        q: float tensor (..., T, D).
        k: float tensor (..., S, D_k).
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
        ValueError: If inputs do not match each other or the widths the layer was built for, or the
            mask has an integer dtype or does not broadcast.

    Example:
        >>> layer = BilinearAttention()
        >>> output, weights = layer(tf.ones((1, 3, 8)), tf.ones((1, 5, 4)), tf.ones((1, 5, 6)))
        >>> output.shape.as_list(), weights.shape.as_list()
        ([1, 3, 6], [1, 3, 5])
    """

    def build(self, q_shape, k_shape, v_shape):
        # No autocast: the scores are computed in float32 under a mixed-precision policy.
        self.kernel = self.add_weight(
            name="kernel", shape=(q_shape[-1], k_shape[-1]), autocast=False
        )

    def _attend(self, q, k, v, **options):
        return bilinear_attention(q, k, v, self.kernel, **options)
