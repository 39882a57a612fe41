"""Cross-entropy with smoothed labels that are never materialized, and divergences.

Axes: B batch, T target length, V vocabulary or classes.
"""

import math

import tensorflow as tf


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
