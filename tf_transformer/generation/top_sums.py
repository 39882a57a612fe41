"""The largest of very many sums, without looking at each twice.

Axes: B batch, K rows of a sentence, V vocabulary, C how many are wanted, n blocks of b tokens.
"""

import math

import tensorflow as tf


def top_sums(values, offsets, count):
    """The largest `values[b * K + k, v] + offsets[b, k]` of each sentence, the first if equal.

    `tf.math.top_k` of (B, K * V), in two steps where that is long: the C entries lie within the C
    blocks with the largest maxima, so only those blocks are sorted. A maximum costs a fraction of
    a place in an order.

    Args:
        values: float tensor (B * K, V), V known.
        offsets: float tensor (B, K), K known; -inf: the row gives nothing, whatever its values.
        count: int, C, 1 to K * V.

    Returns:
        `(sums, rows, tokens)`: float tensor (B, C), the largest first, and int32 tensors (B, C),
        where they stand: k and v.

    Example:
        >>> values = tf.constant([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
        >>> sums, rows, tokens = top_sums(values, tf.constant([[0.0, -1.5]]), 2)
        >>> sums.numpy().tolist(), rows.numpy().tolist(), tokens.numpy().tolist()
        ([[3.0, 2.5]], [[0, 1]], [[2, 0]])
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
    chosen = tf.sort(chosen, axis=-1)  # so that of equal ones the first comes first again
    offsets = tf.expand_dims(tf.gather(offsets, chosen, batch_dims=1), -1)
    sums = _plus(tf.gather(values, chosen, batch_dims=1), offsets)  # (B, C, b)
    sums, order = tf.math.top_k(tf.reshape(sums, (batch, -1)), count)
    block = tf.gather(chosen, order // size, batch_dims=1)  # (B, C)
    tokens = block % blocks * size + order % size
    # What fills a last block up comes only where all that is left is -inf.
    return sums, block // blocks, tf.minimum(tokens, width - 1)


def _plus(values, offsets):
    """The sums; -inf where the offset is, whatever the values are: XLA takes NaN for the best."""
    impossible = -float("inf")
    return tf.where(offsets > impossible, values + offsets, impossible)


def _block_size(width, rows, count):
    """As many blocks as entries in the chosen ones: then there is least to sort."""
    best = math.isqrt(rows * width // count)
    if best < 4:  # nearly all are wanted
        return width
    return min(range(best, 2 * best), key=lambda size: -width % size)  # the least filling up
