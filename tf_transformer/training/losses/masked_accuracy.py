"""Metrics over the labels that count, however they were batched.

Axes: B batch, T target length, V vocabulary or classes.
"""

import math

import keras
import tensorflow as tf

from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.cross_entropy import smoothed_cross_entropy
from tf_transformer.functional.labels import check_ignore_class, read_labels


@keras.saving.register_keras_serializable(package="tf_transformer")
class _MeanOverLabels(keras.metrics.Metric):
    """Mean of a value of each label, over all batches, replicas and workers."""

    def __init__(self, name, ignore_class, **kwargs):
        super().__init__(name=name, **kwargs)
        self.ignore_class = check_ignore_class(ignore_class)
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = read_labels(y_true, y_pred, self.ignore_class, sample_weight)
        values = tf.math.multiply_no_nan(self._values(labels.ids, y_pred), labels.weights)
        sums = [tf.reduce_sum(values), tf.reduce_sum(labels.weights)]
        total, count = current_workers().sum(sums)
        self.total.assign_add(total)
        self.count.assign_add(count)

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}


@keras.saving.register_keras_serializable(package="tf_transformer")
class MaskedAccuracy(_MeanOverLabels):
    """Share of the real labels whose most likely prediction is correct.

    Args:
        name: str, shown in the progress bar.
        ignore_class: the label that does not count, see `SmoothedCrossentropy`.

    Call arguments:
        y_true, y_pred, sample_weight: see `SmoothedCrossentropy`. A prediction with NaN is never
            correct.

    Returns:
        float32 scalar in [0, 1], over all batches since the last reset, of all `Workers`; 0 before
        the first.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: See `SmoothedCrossentropy`.

    Example:
        >>> metric = MaskedAccuracy()
        >>> float(metric(tf.constant([[1, 0]]), tf.constant([[[0.0, 1.0], [0.0, 1.0]]])))
        1.0
    """

    def __init__(self, name="accuracy", ignore_class="auto", **kwargs):
        super().__init__(name, ignore_class, **kwargs)

    def _values(self, ids, y_pred):
        hits = tf.equal(tf.argmax(y_pred, axis=-1, output_type=tf.int32), ids)
        # `argmax` of NaN is 0. In a step that computes the loss, this costs nothing.
        losses = smoothed_cross_entropy(ids, tf.cast(y_pred, tf.float32), 0.0)
        return tf.cast(hits & ~tf.math.is_nan(losses), tf.float32)

    def result(self):
        return tf.math.divide_no_nan(self.total.value, self.count.value)


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenCrossentropy(_MeanOverLabels):
    """Cross-entropy per real label: each counts once, whatever the size of its batch.

    Keras reports a loss as the mean of the batches' means, so that it depends on how the data are
    batched: a token of a batch with little text counts more. In a training step this metric shares
    the work of `SmoothedCrossentropy`.

    Args:
        label_smoothing: float in [0, 1), see `SmoothedCrossentropy`.
        name: str, shown in the progress bar.
        ignore_class: the label that does not count, see `SmoothedCrossentropy`.

    Call arguments:
        y_true, y_pred, sample_weight: see `SmoothedCrossentropy`; here the sum is divided by that
            of the weights, as in the metrics of Keras.

    Returns:
        float32 scalar in nats, over all batches since the last reset, of all `Workers`; NaN before
        the first label.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: See `SmoothedCrossentropy`.

    Example:
        >>> metric = TokenCrossentropy()
        >>> metric.update_state([[1, 2, 3]], tf.zeros((1, 3, 4)))
        >>> metric.update_state([[1, 0, 0]], tf.constant([[[0.0, 9.0, 0.0, 0.0]] * 3]))
        >>> round(float(metric.result()), 4)  # 3 / 4 log 4: the last of the four tokens is certain
        1.0398
    """

    def __init__(self, label_smoothing=0.0, name="token_loss", ignore_class="auto", **kwargs):
        super().__init__(name, ignore_class, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ArgumentError("label_smoothing", "0 <= value < 1", label_smoothing)
        self.label_smoothing = label_smoothing

    def _values(self, ids, y_pred):
        return smoothed_cross_entropy(ids, tf.cast(y_pred, tf.float32), self.label_smoothing)

    def result(self):
        count = self.count.value
        return tf.where(count > 0, tf.math.divide_no_nan(self.total.value, count), math.nan)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Perplexity(TokenCrossentropy):
    """exp of the cross-entropy per real token, over all tokens, however they were batched.

    The mean of the batches' perplexities, or exp of Keras's loss, is another number, and depends
    on the batches.

    Args:
        name: str, shown in the progress bar.
        ignore_class: the label that does not count, see `SmoothedCrossentropy`.

    Call arguments:
        y_true, y_pred, sample_weight: see `TokenCrossentropy`.

    Returns:
        float32 scalar, at least 1, over all batches since the last reset, of all `Workers`; NaN
        before the first label.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: See `SmoothedCrossentropy`.

    Example:
        >>> metric = Perplexity()
        >>> round(float(metric([[1, 2, 0]], tf.zeros((1, 3, 4)))), 4)
        4.0
    """

    def __init__(self, name="perplexity", ignore_class="auto", **kwargs):
        super().__init__(0.0, name, ignore_class, **kwargs)

    def result(self):
        return tf.exp(super().result())

    def get_config(self):
        config = super().get_config()
        del config["label_smoothing"]
        return config
