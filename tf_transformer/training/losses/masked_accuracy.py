"""Metrics that ignore padding.

Axes: B batch, T target length, V vocabulary or classes.
"""

import keras
import tensorflow as tf

from tf_transformer.distribution.global_mean import real_labels
from tf_transformer.distribution.workers import current_workers


@keras.saving.register_keras_serializable(package="tf_transformer")
class MaskedAccuracy(keras.metrics.Metric):
    """Share of the real labels whose most likely prediction is correct.

    Args:
        name: str, shown in the progress bar.

    Call arguments:
        y_true: integer tensor (B, T), token ids, 0 = padding; or (B,), classes, -1 = padding.
        y_pred: float tensor (B, T, V) or (B, V), logits.

    Returns:
        float32 scalar in [0, 1], over all batches since the last reset, of all `Workers`; 0 before
        the first.

    Example:
        >>> metric = MaskedAccuracy()
        >>> float(metric(tf.constant([[1, 0]]), tf.constant([[[0.0, 1.0], [0.0, 1.0]]])))
        1.0
    """

    def __init__(self, name="accuracy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.right = self.add_variable(shape=(), initializer="zeros", name="right")
        self.real = self.add_variable(shape=(), initializer="zeros", name="real")

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = tf.cast(y_true, tf.int32)
        real = real_labels(labels)
        if sample_weight is not None:
            real *= tf.cast(sample_weight, tf.float32)
        hits = tf.equal(tf.argmax(y_pred, axis=-1, output_type=tf.int32), labels)
        sums = [tf.reduce_sum(tf.cast(hits, tf.float32) * real), tf.reduce_sum(real)]
        right, count = current_workers().sum(sums)
        self.right.assign_add(right)
        self.real.assign_add(count)

    def result(self):
        return tf.math.divide_no_nan(self.right.value, self.real.value)
