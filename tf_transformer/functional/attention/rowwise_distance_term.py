"""A bias that depends on the distance of key and query, in rowwise attention.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, D distances; r and
t are the sizes of a block of heads and a block of queries.
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import collect, spread
from tf_transformer.functional.attention.leading_axes import merge_leading, places


class DistanceTerm:
    """The scores of `ByDistance`; see `TensorTerm` for its methods."""

    one_head = False

    def __init__(self, by_distance, lead):
        scores = tf.expand_dims(by_distance.scores, -2)  # (..., 1, D)
        table, self.at = merge_leading(scores), places(scores, lead)
        self.tensors = [table] if by_distance.has_gradient else []
        self._constant = [] if by_distance.has_gradient else [table]
        self.most = shape_of(table)[-1] // 2

    def block(self, rows, tensors, i, j):
        """See `TensorTerm`: the terms of one block, (r, t, S)."""
        (table,) = [*tensors, *self._constant]
        table = tf.gather(table, rows.heads.cut(self.at, 0, i))  # (r, 1, D)
        return spread(table, rows.first(j), rows.queries.size, rows.source)

    def start(self, rows):
        """See `TensorTerm`: the state before the first block."""
        return [tf.zeros_like(x) for x in self.tensors]

    def add(self, rows, i, j, dscores, state):
        """See `TensorTerm`: add the gradient of one block, (r, t, S)."""
        heads = tf.expand_dims(rows.heads.cut(self.at, 0, i), 1)
        return [
            tf.tensor_scatter_nd_add(total, heads, collect(dscores, rows.first(j), self.most, True))
            for total in state
        ]

    def finish(self, rows, state):
        """See `TensorTerm`: the gradients of `tensors`."""
        return list(state)
