"""A bias that depends on the distance of key and query, in blockwise attention.

Axes: T target (query) length, S source (key) length, D distances; t and s are the sizes of a tile.
Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import collect, spread
from tf_transformer.functional.attention.leading_axes import sum_to


class DistanceTile:
    """A bias that is a table of distances; see `TensorTile` for its methods.

    Args:
        by_distance: `ByDistance`.
        lead: int32 tensor, the leading axes of the scores.

    Example:
        >>> from tf_transformer.functional.attention.by_distance import ByDistance
        >>> DistanceTile(ByDistance(tf.zeros((3, 1, 5))), tf.constant([2, 3])).most
        2
    """

    def __init__(self, by_distance, lead):
        table = by_distance.scores
        self.most, self._shared = shape_of(table)[-1] // 2, table.shape[-2] == 1
        if not self._shared:  # a row for each query, so a table for each head
            table = tf.broadcast_to(table, tf.concat([lead, tf.shape(table)[-2:]], 0))
        self.tensors = [table] if by_distance.has_gradient else []
        self._constant = [] if by_distance.has_gradient else [table]

    def block(self, tiles, tensors, i, j):
        """See `TensorTile`: the terms of one tile, (..., t, s)."""
        (table,) = [*tensors, *self._constant]
        rows = tiles.queries.cut(table, -2, i)
        return spread(rows, tiles.first(i, j), tiles.queries.size, tiles.keys.size)

    def start(self, tiles):
        """See `TensorTile`: the state before the first tile."""
        if not self.tensors:
            return []
        if self._shared:
            return [tf.zeros_like(self.tensors[0])]
        return [tiles.rows(tiles.queries, 2 * self.most + 1, zeros=True)]

    def add(self, tiles, i, j, dscores, state):
        """See `TensorTile`: add the gradient of one tile, (..., t, s)."""
        if not state:
            return []
        if self._shared:
            dscores = sum_to(dscores, self.tensors[0])
        terms = collect(dscores, tiles.first(i, j), self.most, together=self._shared)
        if self._shared:
            return [state[0] + terms]
        return [state[0].write(i, state[0].read(i) + terms)]

    def finish(self, tiles, state):
        """See `TensorTile`: the gradients of `tensors`."""
        if not state or self._shared:
            return state
        return [tiles.queries.join(state[0].stack())]
