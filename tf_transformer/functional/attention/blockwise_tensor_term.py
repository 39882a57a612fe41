"""A bias that is a tensor, in blockwise attention.

Axes: T target (query) length, S source (key) length, D distances; t and s are the sizes of a tile.
Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.leading_axes import sum_to


class TensorTile:
    """A bias that is a tensor."""

    def __init__(self, bias):
        self.tensors = [bias]

    def block(self, tiles, tensors, i, j):
        """The terms of one tile, (..., t, s)."""
        return tiles.cut(tensors[0], i, j)

    def start(self, tiles):
        """State of the gradient before the first tile: a list of tensors or TensorArrays."""
        tile = tf.stack([tiles.queries.size, tiles.keys.size])
        count = tiles.queries.count * tiles.keys.count
        shape = tf.concat([[count], tf.shape(self.tensors[0])[:-2], tile], 0)
        array = tf.TensorArray(tiles.dtype, count, clear_after_read=False)
        return [array.unstack(tf.zeros(shape, tiles.dtype))]  # future tiles keep their zeros

    def add(self, tiles, i, j, dscores, state):
        """Add the gradient of one tile, (..., t, s)."""
        return [state[0].write(i * tiles.keys.count + j, sum_to(dscores, self.tensors[0]))]

    def finish(self, tiles, state):
        """The gradients of `tensors`."""
        blocks = state[0].stack()  # (count, ..., t, s)
        shape = tf.concat([[tiles.queries.count, tiles.keys.count], tf.shape(blocks)[1:]], 0)
        blocks = tf.reshape(blocks, shape)  # (T / t, S / s, ..., t, s)
        rank = self.tensors[0].shape.rank
        axes = [1, 0, *range(2, rank), rank + 1, rank]
        rows = tiles.keys.join(tf.transpose(blocks, axes))  # (T / t, ..., S, t)
        return [tiles.queries.join(tf.linalg.matrix_transpose(rows))]  # (..., T, S)
