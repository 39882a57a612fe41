"""Positions in the batch of the rows of a matrix of tokens.

Dense layers and normalizations process each token independently, so they take a matrix with one
row per token; only attention needs to know which tokens belong together. Axes: B batch, T length,
N heads, H head width, M rows of the matrix, W any width.
"""

import tensorflow as tf


def padded_layout(batch_size, length):
    """Layout with one row per position of the batch, including padding: M = B * T."""
    return _Padded(batch_size, length)


def packed_layout(keep):
    """Layout with one row per token, without padding: M is the number of tokens.

    The model's outputs for tokens are the same as with `padded_layout`; outputs for padding are 0.
    The number of rows is only known at run time, so XLA cannot compile it.
    """
    return _Packed(keep)


def tokens_in(mask):
    """Tell tokens from padding by an attention mask: a token is attended to."""
    if mask is None or mask.shape.rank == 2:
        return mask
    return tf.reduce_any(mask, axis=list(range(1, mask.shape.rank - 1)))


def token_rows(mask, layout):
    """Return `tokens_in` as one value for each row of a layout."""
    tokens = tokens_in(mask)
    return None if tokens is None else layout.to_rows(tf.expand_dims(tokens, -1))[:, 0]


class _Padded:
    def __init__(self, batch_size, length):
        self.batch_size, self.length = batch_size, length

    def to_rows(self, x):
        return tf.reshape(x, (-1, x.shape[-1]))  # (B * T, W)

    def to_batch(self, rows):
        return tf.reshape(rows, (self.batch_size, self.length, rows.shape[-1]))  # (B, T, W)

    def to_heads(self, rows, num_heads):
        return _split(self.to_batch(rows), num_heads)

    def from_heads(self, heads):
        return self.to_rows(_join(heads))


class _Packed:
    def __init__(self, keep):
        self._shape = tf.shape(keep)
        self._keep = keep
        flat = tf.reshape(keep, (-1,))
        # A batch with only padding keeps one row, so that there is one to gather from.
        first = tf.one_hot(0, tf.size(flat), True, False)
        flat = flat | (first & ~tf.reduce_any(flat))
        self._places = tf.cast(tf.where(flat)[:, 0], tf.int32)  # (M,), index of each row in B * T
        # The row of each position; padding reads row 0, which is then zeroed or masked.
        rows = tf.where(flat, tf.cumsum(tf.cast(flat, tf.int32)) - 1, 0)
        self._rows = tf.reshape(rows, self._shape)  # (B, T)

    def to_rows(self, x):
        return tf.gather(tf.reshape(x, (-1, x.shape[-1])), self._places)  # (M, W)

    def to_batch(self, rows):
        keep = tf.cast(tf.expand_dims(self._keep, -1), rows.dtype)
        x = tf.gather(rows, self._rows) * keep
        x.set_shape((*self._keep.shape, rows.shape[-1]))
        return x  # (B, T, W)

    # Gathers heads to their final position instead of gathering rows and transposing them: for a
    # batch of one sentence a transpose takes 20 times as long as a gather.
    def to_heads(self, rows, num_heads):
        heads = tf.reshape(rows, (-1, rows.shape[-1] // num_heads))  # (M * N, H)
        n = tf.reshape(tf.range(num_heads), (num_heads, 1))
        return tf.gather(heads, tf.expand_dims(self._rows * num_heads, 1) + n)  # (B, N, T, H)

    def from_heads(self, heads):
        num_heads, width = heads.shape[1], heads.shape[-1]
        length = self._shape[1]
        b, t = self._places // length, self._places % length
        n = tf.range(num_heads) * length
        place = tf.expand_dims(b * num_heads * length + t, 1) + n  # (M, N), in B * N * T
        rows = tf.gather(tf.reshape(heads, (-1, width)), place)
        return tf.reshape(rows, (-1, num_heads * width))  # (M, N * H)


def _split(x, num_heads):
    shape = tf.concat([tf.shape(x)[:-1], [num_heads, x.shape[-1] // num_heads]], 0)
    return tf.transpose(tf.reshape(x, shape), (0, 2, 1, 3))  # (B, N, T, H)


def _join(heads):
    x = tf.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
    width = x.shape[-2] * x.shape[-1]
    return tf.reshape(x, tf.concat([tf.shape(x)[:-2], [width]], 0))  # (B, T, N * H)
