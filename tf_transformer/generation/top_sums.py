"""Top-k over many sums, in two passes.

Axes: B batch, K rows of a sentence, V vocabulary, C entries to select, n blocks of b tokens.
"""

import math

import tensorflow as tf


def top_sums(values, offsets, count):
    """The largest `values[b * K + k, v] + offsets[b, k]` of each sentence, the first of ties.

    `tf.math.top_k` of (B, K * V), in two steps where that is long: the C entries lie within the C
    blocks with the largest maxima, so only those blocks are sorted. Finding a maximum is much
    cheaper than sorting.
    """
    width, rows = values.shape[-1], offsets.shape[-1]
    batch = tf.shape(offsets)[0]
    size = _block_size(width, rows, count)
    blocks = -(-width // size)  # of a row, n
    if width % size:
        fill = [[0, 0], [0, blocks * size - width]]
        values = tf.pad(values, fill, constant_values=-float("inf"))
    values = tf.reshape(values, (batch, rows * blocks, size))  # (B, K * n, b)
    offsets = tf.repeat(offsets, blocks, axis=1)  # (B, K * n)
    largest = _plus(tf.reduce_max(values, axis=-1), offsets)
    _, chosen = tf.math.top_k(largest, min(count, rows * blocks))
    chosen = tf.sort(chosen, axis=-1)  # keeps ties in order
    offsets = tf.expand_dims(tf.gather(offsets, chosen, batch_dims=1), -1)
    sums = _plus(tf.gather(values, chosen, batch_dims=1), offsets)  # (B, C, b)
    sums, order = tf.math.top_k(tf.reshape(sums, (batch, -1)), count)
    block = tf.gather(chosen, order // size, batch_dims=1)  # (B, C)
    tokens = block % blocks * size + order % size
    # The padding of a last block is selected only where all remaining sums are -inf.
    return sums, block // blocks, tf.minimum(tokens, width - 1)


def _plus(values, offsets):
    """The sums; -inf wherever the offset is: XLA ranks NaN above everything."""
    impossible = -float("inf")
    return tf.where(offsets > impossible, values + offsets, impossible)


def _block_size(width, rows, count):
    """As many blocks as entries in the selected blocks, which minimizes the work of sorting."""
    best = math.isqrt(rows * width // count)
    if best < 4:  # nearly all are selected
        return width
    return min(range(best, 2 * best), key=lambda size: -width % size)  # the least padding
