"""Padding ids to few shapes, inside a graph.

Axes: B batch, S length.
"""

import tensorflow as tf

_SHORTEST = 8


def in_bucket(ids, longest):
    """Pad a batch with zeros to the next bucket, so that XLA compiles few programs.

    B becomes a power of two; S becomes 8, 16, 32 and so on, at most `longest`.
    """
    rows, length = tf.unstack(tf.shape(ids))
    wanted = tf.minimum(tf.maximum(_power_of_two(length), _SHORTEST), tf.maximum(longest, length))
    return tf.pad(ids, [[0, _power_of_two(rows) - rows], [0, wanted - length]])


def lengths_of_buckets(longest):
    """The lengths that `in_bucket` pads to."""
    lengths = []
    while not lengths or lengths[-1] < longest:
        lengths.append(min(longest, _SHORTEST * 2 ** len(lengths)))
    return lengths


def _power_of_two(number):
    """The smallest power of two that is at least `number`; 0 for 0."""
    powers = 2 ** tf.range(31)
    least = tf.reduce_min(tf.where(powers >= number, powers, tf.int32.max))
    return tf.where(number > 0, least, 0)
