"""A bias that depends on the distance of key and query, in rowwise attention.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, D
distances; r and t are the sizes of a block of heads and a block of queries.
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import collect, spread
from tf_transformer.functional.attention.leading_axes import merge_leading, places


class DistanceTerm:
    """A bias that is a table of distances; see `TensorTerm` for its methods.

    Args:
        by_distance: `ByDistance`.
        lead: int32 tensor, the leading axes of the scores.

    Example:
        >>> from tf_transformer.functional.attention.by_distance import ByDistance
        >>> DistanceTerm(ByDistance(tf.zeros((3, 1, 5))), tf.constant([2, 3])).most
        2
    """

    one_head = False

    def __init__(self, by_distance, lead):
        scores = by_distance.scores
        if scores.shape[-2] != 1:  # a row for each query, so a table for each head
            scores = tf.broadcast_to(scores, tf.concat([lead, tf.shape(scores)[-2:]], 0))
        self.at, self.from_first_query = places(scores, lead), by_distance.first
        table = merge_leading(scores)  # (.., T or 1, D)
        self.tensors = [table] if by_distance.has_gradient else []
        self._constant = [] if by_distance.has_gradient else [table]
        self.most, self._shared = shape_of(table)[-1] // 2, table.shape[-2] == 1

    def block(self, rows, tensors, i, j):
        """See `TensorTerm`: the terms of one block, (r, t, S)."""
        (table,) = [*tensors, *self._constant]
        if self._shared:
            block = tf.gather(table, rows.heads.cut(self.at, 0, i))
        else:
            block = rows.rows_of(table, i, j)
        return spread(block, rows.first(j), rows.queries.size, rows.source)

    def start(self, rows):
        """See `TensorTerm`: the state before the first block."""
        if not self.tensors:
            return []
        if self._shared:
            return [tf.zeros_like(self.tensors[0])]
        return [rows.query_rows(2 * self.most + 1)]

    def add(self, rows, i, j, dscores, state):
        """See `TensorTerm`: add the gradient of one block, (r, t, S)."""
        if not state:
            return []
        terms = collect(dscores, rows.first(j), self.most, together=self._shared)
        if not self._shared:
            return [state[0].write(rows.number(i, j), terms)]
        heads = tf.expand_dims(rows.heads.cut(self.at, 0, i), 1)
        return [tf.tensor_scatter_nd_add(state[0], heads, terms)]

    def finish(self, rows, state):
        """See `TensorTerm`: the gradients of `tensors`."""
        if not state or self._shared:
            return state
        return [rows.join_queries(state[0], 2 * self.most + 1)]
