"""The loss of the paper: cross-entropy with label smoothing, ignoring padding.

Axes: B batch, T target length, V vocabulary or classes.
"""

import keras
import tensorflow as tf

from tf_transformer.distribution.global_mean import (
    real_labels,
    real_share,
    with_global_value,
)
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.cross_entropy import smoothed_cross_entropy


@keras.saving.register_keras_serializable(package="tf_transformer")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy against (1 - smoothing) * one-hot + smoothing / V, mean over real labels.

    "Attention Is All You Need", section 5.4. Padding is ignored.

    Args:
        label_smoothing: float in [0, 1).

    Call arguments:
        y_true: integer tensor (B, T), token ids, 0 = padding; or (B,), classes, -1 = padding.
        y_pred: float tensor (B, T, V) or (B, V), logits.

    Returns:
        Scalar: the sum over real labels divided by their number. Under a distribution strategy and
        with several `Workers` the number is the total of all, so that two give the loss and the
        gradients of one, however unevenly the padding is distributed.

    Raises:
        ValueError: If `label_smoothing` is outside [0, 1).

    Example:
        >>> loss = SmoothedCrossentropy(label_smoothing=0.0)
        >>> round(float(loss(tf.constant([[1, 0]]), tf.zeros((1, 2, 4)))), 4)  # log 4
        1.3863
    """

    def __init__(self, label_smoothing=0.1, name="smoothed_crossentropy", **kwargs):
        super().__init__(name=name, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ArgumentError("label_smoothing", "0 <= value < 1", label_smoothing)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        labels = tf.cast(y_true, tf.int32)
        logits = tf.cast(y_pred, tf.float32)
        loss = smoothed_cross_entropy(labels, logits, self.label_smoothing)  # (B, T)
        real = real_labels(labels)  # (B, T)
        # Keras takes the mean over all B x T labels; rescale it to the mean over real ones.
        share = tf.cast(tf.size(labels), tf.float32) * real_share(real)
        return with_global_value(loss * real * share)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
