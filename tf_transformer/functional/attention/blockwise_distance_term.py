"""A bias that depends on the distance of key and query, in blockwise attention.

Axes: T target (query) length, S source (key) length, D distances; t and s are the sizes of a tile.
Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import collect, spread
from tf_transformer.functional.attention.leading_axes import sum_to


class DistanceTile:
    """The scores of `ByDistance`; see `TensorTile` for its methods."""

    def __init__(self, by_distance):
        table = tf.expand_dims(by_distance.scores, -2)  # (..., 1, D)
        self.tensors = [table] if by_distance.has_gradient else []
        self._constant = [] if by_distance.has_gradient else [table]
        self.most = shape_of(table)[-1] // 2

    def block(self, tiles, tensors, i, j):
        """See `TensorTile`: the terms of one tile, (..., t, s)."""
        (table,) = [*tensors, *self._constant]
        return spread(table, tiles.first(i, j), tiles.queries.size, tiles.keys.size)

    def start(self, tiles):
        """See `TensorTile`: the state before the first tile."""
        return [tf.zeros_like(x) for x in self.tensors]

    def add(self, tiles, i, j, dscores, state):
        """See `TensorTile`: add the gradient of one tile, (..., t, s)."""
        return [
            total + collect(sum_to(dscores, total), tiles.first(i, j), self.most, together=True)
            for total in state
        ]

    def finish(self, tiles, state):
        """See `TensorTile`: the gradients of `tensors`."""
        return list(state)
