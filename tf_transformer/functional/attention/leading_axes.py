"""Tensors whose leading axes (batch, heads) are merged into one.

Axes: R heads of the whole batch, T target (query) length, S source (key) length.
"""

import tensorflow as tf


def merge_leading(x):
    """Merge all axes but the last two."""
    leading = [tf.reduce_prod(tf.shape(x)[:-2])]
    flat = tf.reshape(x, tf.concat([leading, tf.shape(x)[-2:]], 0))
    flat.set_shape((x.shape[:-2].num_elements(), *x.shape[-2:]))
    return flat


def places(x, lead):
    """Find the row of `merge_leading(x)` that each head uses."""
    missing = tf.fill((tf.size(lead) - tf.rank(x) + 2,), 1)
    own = tf.concat([missing, tf.shape(x)[:-2]], 0)
    numbers = tf.reshape(tf.range(tf.reduce_prod(own)), own)
    return tf.reshape(tf.broadcast_to(numbers, lead), (-1,))


def sum_to(x, like):
    """Sum over the leading axes along which another tensor was broadcast."""
    missing = x.shape.rank - like.shape.rank
    x = tf.reduce_sum(x, list(range(missing)))
    sizes = {"s0": tf.shape(like)[:-2], "s1": tf.shape(x)[:-2]}
    return tf.reduce_sum(x, tf.raw_ops.BroadcastGradientArgs(**sizes).r0, keepdims=True)
