"""Labels and sample weights, for losses, metrics and models with their own loss.

Axes: B batch, T length, V vocabulary or classes. Labels are (B,) for classes and (B, T) for tokens.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.ids import in_xla_program


class Labels(NamedTuple):
    """Labels that have been checked."""

    ids: tf.Tensor
    real: tf.Tensor
    weights: tf.Tensor


def read_labels(y_true, y_pred, ignore_class="auto", sample_weight=None):
    """Check labels, weights of rows or labels, and find out which labels of logits count."""
    labels, logits = exact_labels(y_true), tf.convert_to_tensor(y_pred)
    labels = _of_shape(labels, logits, "y_true")
    ignore_class = _fitting(ignore_class, labels)
    real = _counted(labels, ignore_class)
    mask = getattr(y_pred, "_keras_mask", None)
    if mask is not None:
        real &= _of_shape(tf.cast(mask, tf.bool), logits, "the Keras mask of y_pred")
    wrong = real & ((labels < 0) | (labels >= tf.cast(tf.shape(logits)[-1], labels.dtype)))
    if labels.dtype.is_floating:
        wrong |= real & (labels != tf.round(labels))
    # An XLA program cannot raise; there the label is -1, and `smoothed_cross_entropy` NaN.
    _refuse(wrong, labels, logits.shape[-1], ignore_class)
    ids = tf.where(real, tf.where(wrong, tf.cast(-1, labels.dtype), labels), 0)
    real = tf.cast(real, tf.float32)
    weights = real if sample_weight is None else real * _weights(sample_weight, labels)
    return Labels(tf.cast(ids, tf.int32), real, weights)


def real_labels(labels, ignore_class="auto"):
    """Which labels count, when there are no logits to check them against."""
    labels = exact_labels(labels)
    return tf.cast(_counted(labels, _fitting(ignore_class, labels)), tf.float32)


def padding_label(dtype):
    """The label of a row that only fills up a batch; it counts in no task."""
    return -math.inf if dtype.is_floating else tf.int32.min


def ignore_class_of(loss):
    """The `ignore_class` of a loss, Keras's included, for other terms and metrics."""
    return getattr(loss, "ignore_class", "auto")


def check_ignore_class(ignore_class):
    """Return an `ignore_class` after a check."""
    if ignore_class not in (None, "auto") and type(ignore_class) is not int:
        raise ArgumentError("ignore_class", 'an int, None or "auto"', f"{ignore_class!r}")
    return ignore_class


def exact_labels(labels):
    """Labels in a dtype that can represent all class numbers."""
    if isinstance(labels, tf.RaggedTensor):
        remedy = "Pass y_true.to_tensor(N) with the number N that does not count."
        raise ArgumentError("y_true", "a dense tensor", "a ragged one", remedy)
    labels = tf.convert_to_tensor(labels)
    kind = labels.dtype
    if kind in (tf.int32, tf.int64, tf.float32, tf.float64):
        return labels
    if kind.is_integer or kind.is_bool:
        return tf.cast(labels, tf.int64 if kind in (tf.uint32, tf.uint64) else tf.int32)
    expected = "integers, or float32 with whole numbers"
    raise ArgumentError("y_true", expected, kind.name, "Cast them to int32 where they are created.")


def _fitting(ignore_class, labels):
    if ignore_class == "auto":
        return -1 if labels.shape.rank == 1 else 0
    return ignore_class


def _counted(labels, ignore_class):
    counted = labels != tf.constant(padding_label(labels.dtype), labels.dtype)
    if ignore_class is None:
        return counted
    return counted & (labels != tf.cast(ignore_class, labels.dtype))


def _of_shape(x, logits, name):
    """Reshape x to the logits without V; x may have one more axis of size 1."""
    shape = logits.shape[:-1]
    if shape.rank is None:
        raise ArgumentError("y_pred", "logits of a known rank", "unknown", "Set their shape.")
    longer = x.shape.rank == shape.rank + 1 and x.shape[-1] in (1, None)
    own = x.shape[:-1] if longer else x.shape
    if not shape.is_compatible_with(own):
        expected = f"the shape of y_pred {logits.shape} without its last axis, or with 1 there"
        remedy = "For one-hot labels pass tf.argmax(y_true, -1)."
        raise ArgumentError(name, expected, x.shape, remedy)
    if own.is_fully_defined() and shape.is_fully_defined():
        return tf.squeeze(x, -1) if longer else x
    expected = tf.shape(logits)[:-1]
    if not in_xla_program():
        message = f"{name}: expected the shape of y_pred without its last axis"
        tf.debugging.assert_equal(tf.shape(x)[: shape.rank], expected, message)
    return tf.ensure_shape(tf.reshape(x, expected), shape)


def _weights(sample_weight, labels):
    """Sample weights in the shape of the labels."""
    weights, rank = tf.cast(tf.convert_to_tensor(sample_weight), tf.float32), labels.shape.rank
    given = weights.shape
    if given.rank == rank + 1 and given[-1] in (1, None):
        weights = tf.reshape(weights, tf.shape(weights)[:-1])
    elif given.rank == 1:  # of rows, also where B = T
        weights = tf.reshape(weights, [-1] + [1] * (rank - 1))
    sizes = zip(weights.shape, labels.shape, strict=True) if weights.shape.rank == rank else ()
    fits = [
        None in pair or pair[0] == pair[1] or (n and pair[0] == 1) for n, pair in enumerate(sizes)
    ]
    if given.rank != 0 and not (fits and all(fits)):
        rows = f"a weight for each row, ({labels.shape[0]},) or ({labels.shape[0]}, 1)"
        raise ArgumentError("sample_weight", f"{rows}, or for each label, {labels.shape}", given)
    return tf.broadcast_to(weights, tf.shape(labels))


def _refuse(wrong, labels, classes, ignore_class):
    """Raise if a label is wrong, except in an XLA program."""
    if in_xla_program():
        return
    numbers = f"whole numbers from 0 to {'V - 1' if classes is None else classes - 1}"
    expected = f"{numbers}, and ignore_class={ignore_class} for what does not count"
    remedy = "Pass another ignore_class, such as -100, if that label does not count."
    if not tf.executing_eagerly():
        found = [tf.reduce_min(labels), "to", tf.reduce_max(labels)]
        data = [f"y_true: expected {expected}, got", *found, remedy]
        tf.debugging.Assert(~tf.reduce_any(wrong), data)
    elif tf.reduce_any(wrong):
        found = sorted(set(tf.boolean_mask(labels, wrong).numpy().tolist()))
        raise ArgumentError("y_true", expected, ", ".join(map(str, found[:5])), remedy)
