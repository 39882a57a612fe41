"""The loss of the paper: cross-entropy with label smoothing, ignoring padding.

Axes: B batch, T target length, V vocabulary or classes.
"""

import keras
import tensorflow as tf

from tf_transformer.distribution.global_mean import global_mean, with_global_value
from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.cross_entropy import smoothed_cross_entropy
from tf_transformer.functional.labels import check_ignore_class, read_labels


@keras.saving.register_keras_serializable(package="tf_transformer")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy against (1 - smoothing) * one-hot + smoothing / V, mean over real labels.

    "Attention Is All You Need", section 5.4. Labels that do not count, such as padding, are left
    out of the sum and of the number by which it is divided.

    Args:
        label_smoothing: float in [0, 1).
        ignore_class: the label that does not count: an int, or None if all count, as in Keras.
            "auto" fits the task: 0, the padding, for tokens (B, T); -1 for classes (B,); -100, as
            in Hugging Face's data, for a `BertForTokenClassification` that is compiled with this
            loss, since 0 is a class there.
        reduction: see `keras.losses.Loss`.

    Call arguments:
        y_true: integer tensor (B, T) or (B, T, 1), token ids; or (B,) or (B, 1), classes. float32
            and float64 are taken if the numbers are whole.
        y_pred: float tensor (B, T, V) or (B, V), logits. Labels that their Keras mask blocks do not
            count.
        sample_weight: None, or float tensor: (B,) or (B, 1) for rows, also where B = T; or of the
            labels' shape. As in Keras, the number by which the sum is divided does not change.

    Returns:
        Scalar: the sum over real labels divided by their number. Under a distribution strategy and
        with several `Workers` the number is the total of all, so that two give the loss and the
        gradients of one, however unevenly the padding is distributed. NaN for a label out of range
        in a program that XLA compiles, which cannot raise an error.

    Raises:
        ValueError: If `label_smoothing` is outside [0, 1), `ignore_class` is of another type, the
            shapes of labels, logits and weights do not fit, or labels are one-hot. In eager mode
            also if a label that counts is not a whole number from 0 to V - 1.
        tf.errors.InvalidArgumentError: The last, in a graph, as in `fit`.

    Example:
        >>> loss = SmoothedCrossentropy(label_smoothing=0.0)
        >>> round(float(loss(tf.constant([[1, 0]]), tf.zeros((1, 2, 4)))), 4)  # log 4
        1.3863
    """

    def __init__(
        self, label_smoothing=0.1, name="smoothed_crossentropy", ignore_class="auto", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ArgumentError("label_smoothing", "0 <= value < 1", label_smoothing)
        self.label_smoothing = label_smoothing
        self.ignore_class = check_ignore_class(ignore_class)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras would round labels to its float type, and divide by the mask's labels, not by those
        # that are real as well.
        with tf.name_scope(self.name):
            labels = read_labels(y_true, y_pred, self.ignore_class, sample_weight)
            logits = tf.cast(y_pred, tf.float32)
            values = smoothed_cross_entropy(labels.ids, logits, self.label_smoothing)  # (B, T)
            values = tf.math.multiply_no_nan(values, labels.weights)
            if self.reduction in (None, "none"):
                return values
            if self.reduction == "sum":
                return with_global_value(tf.reduce_sum(values) * current_workers().count)
            by_weight = self.reduction == "mean_with_sample_weight"
            return global_mean(values, labels.weights if by_weight else labels.real)

    def get_config(self):
        own = {"label_smoothing": self.label_smoothing, "ignore_class": self.ignore_class}
        return {**super().get_config(), **own}
