"""Tensors whose leading axes (batch, heads) are merged into one.

Axes: R heads of the whole batch, T target (query) length, S source (key) length.
"""

import tensorflow as tf


def merge_leading(x):
    """Merge all axes but the last two.

    Args:
        x: tensor (..., T, S).

    Returns:
        (R, T, S).

    Example:
        >>> merge_leading(tf.zeros((2, 3, 5, 7))).shape.as_list()
        [6, 5, 7]
    """
    leading = [tf.reduce_prod(tf.shape(x)[:-2])]
    flat = tf.reshape(x, tf.concat([leading, tf.shape(x)[-2:]], 0))
    flat.set_shape((x.shape[:-2].num_elements(), *x.shape[-2:]))
    return flat


def places(x, lead):
    """Find the row of `merge_leading(x)` that each head uses.

    Args:
        x: tensor (..., T, S) whose leading axes broadcast to `lead`.
        lead: int32 tensor, the leading axes of the scores.

    Returns:
        int32 tensor (R,).

    Example:
        >>> places(tf.zeros((2, 1, 5, 7)), tf.constant([2, 3])).numpy().tolist()
        [0, 0, 0, 1, 1, 1]
    """
    missing = tf.fill((tf.size(lead) - tf.rank(x) + 2,), 1)
    own = tf.concat([missing, tf.shape(x)[:-2]], 0)
    numbers = tf.reshape(tf.range(tf.reduce_prod(own)), own)
    return tf.reshape(tf.broadcast_to(numbers, lead), (-1,))


def sum_to(x, like):
    """Sum over the leading axes along which another tensor was broadcast.

    Args:
        x: float tensor (..., t, s).
        like: tensor whose leading axes broadcast to those of `x`.

    Returns:
        Tensor with the leading axes of `like`.

    Example:
        >>> sum_to(tf.ones((2, 3, 5, 7)), tf.zeros((3, 1, 1))).shape.as_list()
        [3, 5, 7]
    """
    missing = x.shape.rank - like.shape.rank
    x = tf.reduce_sum(x, list(range(missing)))
    sizes = {"s0": tf.shape(like)[:-2], "s1": tf.shape(x)[:-2]}
    return tf.reduce_sum(x, tf.raw_ops.BroadcastGradientArgs(**sizes).r0, keepdims=True)
