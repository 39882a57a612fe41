"""What blockwise attention adds to the scores, tile by tile, with its gradient.

Axes: T target (query) length, S source (key) length, D distances; t and s are the sizes of a tile.
Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import ByDistance, collect, spread


class TensorTile:
    """A bias that is a tensor.

    Args:
        bias: float tensor that broadcasts to (..., T, S).

    Attributes:
        tensors: list of the tensors with a gradient.

    Example:
        >>> len(TensorTile(tf.zeros((3, 5, 7))).tensors)
        1
    """

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
        return [state[0].write(i * tiles.keys.count + j, _sum_to(dscores, self.tensors[0]))]

    def finish(self, tiles, state):
        """The gradients of `tensors`."""
        blocks = state[0].stack()  # (count, ..., t, s)
        shape = tf.concat([[tiles.queries.count, tiles.keys.count], tf.shape(blocks)[1:]], 0)
        blocks = tf.reshape(blocks, shape)  # (T / t, S / s, ..., t, s)
        rank = self.tensors[0].shape.rank
        axes = [1, 0, *range(2, rank), rank + 1, rank]
        rows = tiles.keys.join(tf.transpose(blocks, axes))  # (T / t, ..., S, t)
        return [tiles.queries.join(tf.linalg.matrix_transpose(rows))]  # (..., T, S)


class DistanceTile:
    """A bias that is a table of distances; see `TensorTile` for its methods.

    Args:
        by_distance: `ByDistance`.
        lead: int32 tensor, the leading axes of the scores.

    Example:
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
        (table,) = [*tensors, *self._constant]
        rows = tiles.queries.cut(table, -2, i)
        return spread(rows, tiles.first(i, j), tiles.queries.size, tiles.keys.size)

    def start(self, tiles):
        if not self.tensors:
            return []
        if self._shared:
            return [tf.zeros_like(self.tensors[0])]
        return [tiles.rows(tiles.queries, 2 * self.most + 1, zeros=True)]

    def add(self, tiles, i, j, dscores, state):
        if not state:
            return []
        if self._shared:
            dscores = _sum_to(dscores, self.tensors[0])
        terms = collect(dscores, tiles.first(i, j), self.most, together=self._shared)
        if self._shared:
            return [state[0] + terms]
        return [state[0].write(i, state[0].read(i) + terms)]

    def finish(self, tiles, state):
        if not state or self._shared:
            return state
        return [tiles.queries.join(state[0].stack())]


def tile_term(bias, lead, dtype):
    """The term for a bias: None, a `TensorTile` or a `DistanceTile`.

    Args:
        bias: None, a float tensor or `ByDistance`.
        lead: int32 tensor, the leading axes of the scores.
        dtype: dtype of the scores.

    Returns:
        None or the term.

    Example:
        >>> tile_term(None, tf.constant([2]), tf.float32) is None
        True
    """
    if bias is None:
        return None
    if isinstance(bias, ByDistance):
        return DistanceTile(bias.cast(dtype), lead)
    return TensorTile(tf.cast(bias, dtype))


def _sum_to(x, like):
    """Sum over the leading axes along which `like` was broadcast."""
    missing = x.shape.rank - like.shape.rank
    x = tf.reduce_sum(x, list(range(missing)))
    sizes = {"s0": tf.shape(like)[:-2], "s1": tf.shape(x)[:-2]}
    return tf.reduce_sum(x, tf.raw_ops.BroadcastGradientArgs(**sizes).r0, keepdims=True)
