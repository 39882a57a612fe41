"""Cross-entropy against smoothed labels, without materializing the smoothed labels.

Axes: B batch, T target length, V vocabulary.
"""

import tensorflow as tf


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """-sum_v q(v) log softmax(logits)(v) with q = (1 - e) * one-hot + e / V, e = label_smoothing.

    Szegedy et al. 2016, section 7; "Attention Is All You Need", section 5.4. Written out, it is
    logsumexp(logits) - (1 - e) * logits[label] - e * mean(logits), one number per token. The
    gradient, softmax - q, is recomputed from the logits in one compiled pass, so the logits are
    the only B x T x V tensor kept between the two passes.

    Args:
        labels: integer tensor (B, T) of ids in [0, V).
        logits: float32 tensor (B, T, V).
        label_smoothing: float in [0, 1).

    Returns:
        float32 tensor (B, T), in nats.

    Example:
        >>> loss = smoothed_cross_entropy(tf.constant([[1]]), tf.zeros((1, 1, 4)), 0.1)
        >>> round(float(loss[0, 0]), 4)  # log 4, whatever the smoothing
        1.3863
    """
    smoothing = tf.constant(label_smoothing, tf.float32)

    @tf.custom_gradient
    def losses(logits):
        loss, normalizer = _losses(labels, logits, smoothing)
        return loss, lambda upstream: _gradient(labels, logits, smoothing, normalizer, upstream)

    return losses(logits)


@tf.function(jit_compile=True, autograph=False)
def _losses(labels, logits, smoothing):
    highest = tf.reduce_max(logits, axis=-1, keepdims=True)  # (B, T, 1)
    normalizer = highest + tf.math.log(
        tf.reduce_sum(tf.exp(logits - highest), axis=-1, keepdims=True)
    )
    # XLA fuses a masked sum with the other sums; a gather would end in a scatter.
    label_logits = tf.reduce_sum(tf.where(_is_label(labels, logits), logits, 0.0), axis=-1)
    mean_logits = tf.reduce_mean(logits, axis=-1)
    loss = normalizer[..., 0] - (1.0 - smoothing) * label_logits - smoothing * mean_logits
    return loss, normalizer


@tf.function(jit_compile=True, autograph=False)
def _gradient(labels, logits, smoothing, normalizer, upstream):
    uniform = smoothing / tf.cast(tf.shape(logits)[-1], tf.float32)
    wanted = tf.where(_is_label(labels, logits), 1.0 - smoothing, 0.0) + uniform  # (B, T, V)
    return (tf.exp(logits - normalizer) - wanted) * upstream[..., tf.newaxis]


def _is_label(labels, logits):
    return tf.equal(tf.range(tf.shape(logits)[-1]), tf.cast(labels, tf.int32)[..., tf.newaxis])
