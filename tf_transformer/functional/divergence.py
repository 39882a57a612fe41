"""Divergence between two predictions.

Axes: B batch, T target length, V vocabulary or classes.
"""

import tensorflow as tf


def symmetric_divergence(logits):
    """KL(p || q) + KL(q || p) for p and q, the softmax of the first and second half of the rows.

    Twice equation 2 of Liang et al. 2021, "R-Drop". With d, the difference between the halves'
    logits, this is E_p[d] - E_q[d]. The gradient of the first half is p (d - E_p[d]) + p - q, and
    that of the second half is the same with the halves swapped. Both passes are compiled, and the
    logits are the only B x T x V tensor kept between them.
    """

    @tf.custom_gradient
    def divergences(logits):
        divergence, *kept = _divergence(logits)
        return divergence, lambda upstream: _gradient(logits, *kept, upstream)

    return divergences(logits)


def softened_divergence(logits, teacher_logits, temperature=1.0):
    """temperature^2 KL(softmax(teacher / temperature) || softmax(student / temperature)).

    Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", section 2; the factor keeps
    gradients as large as those of labels.
    """
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
def _gradient(logits, normalizers, mean_one, mean_other, upstream):
    one, other = tf.split(tf.exp(logits - normalizers), 2)
    difference = _difference(logits)
    upstream = upstream[..., tf.newaxis]
    return tf.concat(
        [
            (one * (difference - mean_one) + one - other) * upstream,
            (other * (mean_other - difference) + other - one) * upstream,
        ],
        0,
    )


def _difference(logits):
    one, other = tf.split(logits, 2)
    return one - other
