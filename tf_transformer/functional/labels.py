"""Labels and sample weights, cross-entropy with smoothed labels, and divergences of logits.

Axes: B batch, T length, V vocabulary or classes. Labels are (B,) for classes and (B, T) for tokens.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.tensors import in_xla_program


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
    weights = real if sample_weight is None else real * label_weights(sample_weight, labels)
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
    check(shape.rank is not None, "y_pred", "logits of a known rank", "unknown", "Set their shape.")
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


def label_weights(sample_weight, labels):
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


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """-sum_v q(v) log softmax(logits)(v), q = (1 - e) * one-hot + e / V, e = label_smoothing."""

    # Equal to logsumexp(logits) - (1 - e) * logits[label] - e * mean(logits). The gradient, softmax
    # - q, is recomputed in one compiled pass, so the logits are the only B x T x V tensor kept. In
    # one graph, a loss and metrics of the same logits share `_parts`, whatever their smoothing.
    @tf.custom_gradient
    def losses(logits):
        normalizer, label_logits, mean_logits = _parts(labels, logits)
        loss = normalizer - (1.0 - label_smoothing) * label_logits
        if label_smoothing:  # the mean may be -inf
            loss -= label_smoothing * mean_logits
        smoothing = tf.constant(label_smoothing, tf.float32)

        def gradient(upstream):
            return _gradient(labels, logits, smoothing, normalizer, upstream)

        return loss, gradient

    return losses(logits)


@tf.function(jit_compile=True, autograph=False)
def _parts(labels, logits):
    """Return logsumexp(logits), logits[label] and mean(logits), each (B, T)."""
    highest = tf.reduce_max(logits, axis=-1, keepdims=True)  # (B, T, 1)
    total = tf.reduce_sum(tf.exp(logits - highest), axis=-1, keepdims=True)
    normalizer = highest + tf.math.log(total)
    # XLA fuses a masked sum with the other sums; a gather would end in a scatter.
    label_logits = tf.reduce_sum(tf.where(_is_label(labels, logits), logits, 0.0), axis=-1)
    label_logits = tf.where(_is_in_range(labels, logits), label_logits, math.nan)
    return normalizer[..., 0], label_logits, tf.reduce_mean(logits, axis=-1)


@tf.function(jit_compile=True, autograph=False)
def _gradient(labels, logits, smoothing, normalizer, upstream):
    uniform = smoothing / tf.cast(tf.shape(logits)[-1], tf.float32)
    wanted = tf.where(_is_label(labels, logits), 1.0 - smoothing, 0.0) + uniform  # (B, T, V)
    upstream = tf.where(_is_in_range(labels, logits), upstream, math.nan)[..., tf.newaxis]
    # Where `upstream` is 0, the gradient is 0 even if a logit is NaN.
    return tf.math.multiply_no_nan(tf.exp(logits - normalizer[..., tf.newaxis]) - wanted, upstream)


def _is_label(labels, logits):
    return tf.equal(tf.range(tf.shape(logits)[-1]), tf.cast(labels, tf.int32)[..., tf.newaxis])


def _is_in_range(labels, logits):
    return (labels >= 0) & (labels < tf.cast(tf.shape(logits)[-1], labels.dtype))


def symmetric_divergence(logits):
    """KL(p || q) + KL(q || p) for p and q, the softmax of the first and second half of the rows."""

    # With d, the difference between the halves' logits, this is E_p[d] - E_q[d]. The gradient of
    # the first half is p (d - E_p[d]) + p - q; for the second half, swap the halves.
    @tf.custom_gradient
    def divergences(logits):
        divergence, *kept = _divergence(logits)
        return divergence, lambda upstream: _divergence_gradient(logits, *kept, upstream)

    return divergences(logits)


def softened_divergence(logits, teacher_logits, temperature=1.0):
    """temperature^2 KL(softmax(teacher / temperature) || softmax(student / temperature))."""
    logits, teacher_logits = (
        tf.nn.log_softmax(tf.cast(x, tf.float32) / temperature) for x in (logits, teacher_logits)
    )
    return temperature**2 * tf.reduce_sum(tf.exp(teacher_logits) * (teacher_logits - logits), -1)


@tf.function(jit_compile=True, autograph=False)
def _divergence(logits):
    highest = tf.reduce_max(logits, axis=-1, keepdims=True)  # (2B, T, 1)
    weights = tf.exp(logits - highest)
    total = tf.reduce_sum(weights, axis=-1, keepdims=True)
    difference = _difference(logits)
    means = [
        tf.reduce_sum(half * difference, axis=-1, keepdims=True) / half_total
        for half, half_total in zip(tf.split(weights, 2), tf.split(total, 2), strict=True)
    ]
    return (means[0] - means[1])[..., 0], highest + tf.math.log(total), *means


@tf.function(jit_compile=True, autograph=False)
def _divergence_gradient(logits, normalizers, mean_one, mean_other, upstream):
    one, other = tf.split(tf.exp(logits - normalizers), 2)
    difference = _difference(logits)
    gradient_one = one * (difference - mean_one) + one - other
    gradient_other = other * (mean_other - difference) + other - one
    upstream = upstream[..., tf.newaxis]
    return tf.concat([gradient_one * upstream, gradient_other * upstream], 0)


def _difference(logits):
    one, other = tf.split(logits, 2)
    return one - other
