"""Attention with linear biases.

Axes: N heads, D distances.
"""

import keras
import tensorflow as tf

from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.distances import alibi_slopes
from tf_transformer.layers.positions.positions import Positions


@keras.saving.register_keras_serializable(package="tf_transformer")
class AlibiPositions(Positions):
    """Lower a score by its distance times a slope, which differs from head to head.

    -m_n |s - t|, Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases Enables
    Input Length Extrapolation", section 3. Nothing is learned.

    Differs from the paper: it has causal attention only; here keys after the query count by their
    distance too.

    Example:
        >>> terms = AlibiPositions().by_distance(tf.ones((1, 2, 3, 4)), 3, causal=False)
        >>> terms.scores[0].numpy().tolist()
        [-0.125, -0.0625, -0.0, -0.0625, -0.125]
    """

    def by_distance(self, q, keys, causal):
        """See `Positions`: a constant table, as long as the text."""
        del causal
        queries = tf.shape(q)[2] if q.shape[2] is None else q.shape[2]
        either = tf.maximum if tf.is_tensor(queries) or tf.is_tensor(keys) else max
        most = either(either(queries, keys) - 1, 1)
        distances = tf.abs(tf.range(-most, most + 1))
        slopes = alibi_slopes(q.shape[1])[:, None]  # (N, 1)
        scores = -slopes * tf.cast(distances, tf.float32)  # (N, D)
        return ByDistance(scores, has_gradient=False)
