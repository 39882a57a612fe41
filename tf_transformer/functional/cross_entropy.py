"""Cross-entropy against smoothed labels, without materializing the smoothed labels.

Axes: B batch, T target length, V vocabulary.
"""

import math

import tensorflow as tf


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """-sum_v q(v) log softmax(logits)(v) with q = (1 - e) * one-hot + e / V, e = label_smoothing.

    Szegedy et al. 2016, section 7; "Attention Is All You Need", section 5.4. Written out, it is
    logsumexp(logits) - (1 - e) * logits[label] - e * mean(logits), one number per token. The
    gradient, softmax - q, is recomputed from the logits in one compiled pass, so the logits are
    the only B x T x V tensor kept between the two passes. Calls with the same labels and logits in
    one graph, of a loss and of metrics, share the forward pass, whatever the smoothing.
    """

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
    """What a loss is made of: logsumexp(logits), logits[label] and mean(logits), each (B, T)."""
    highest = tf.reduce_max(logits, axis=-1, keepdims=True)  # (B, T, 1)
    normalizer = highest + tf.math.log(
        tf.reduce_sum(tf.exp(logits - highest), axis=-1, keepdims=True)
    )
    # XLA fuses a masked sum with the other sums; a gather would end in a scatter.
    label_logits = tf.reduce_sum(tf.where(_is_label(labels, logits), logits, 0.0), axis=-1)
    label_logits = tf.where(_is_in_range(labels, logits), label_logits, math.nan)
    return normalizer[..., 0], label_logits, tf.reduce_mean(logits, axis=-1)


@tf.function(jit_compile=True, autograph=False)
def _gradient(labels, logits, smoothing, normalizer, upstream):
    uniform = smoothing / tf.cast(tf.shape(logits)[-1], tf.float32)
    wanted = tf.where(_is_label(labels, logits), 1.0 - smoothing, 0.0) + uniform  # (B, T, V)
    upstream = tf.where(_is_in_range(labels, logits), upstream, math.nan)[..., tf.newaxis]
    # What does not count has no gradient, even where a logit is NaN.
    return tf.math.multiply_no_nan(tf.exp(logits - normalizer[..., tf.newaxis]) - wanted, upstream)


def _is_label(labels, logits):
    return tf.equal(tf.range(tf.shape(logits)[-1]), tf.cast(labels, tf.int32)[..., tf.newaxis])


def _is_in_range(labels, logits):
    return (labels >= 0) & (labels < tf.cast(tf.shape(logits)[-1], labels.dtype))
