"""What rowwise attention adds to the scores, block by block, with its gradient.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, D distances;
r and t are the sizes of a block of heads and a block of queries.
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import collect, spread


def merge_leading(x):
    """Merge all axes but the last two.

    Args:
        x: tensor (..., T, S).

    Returns:
        (R, T, S).

    Example:
        >>> merge_leading(tf.zeros((2, 3, 5, 7))).shape.as_list()
        [6, 5, 7]
    """
    leading = [tf.reduce_prod(tf.shape(x)[:-2])]
    flat = tf.reshape(x, tf.concat([leading, tf.shape(x)[-2:]], 0))
    flat.set_shape((x.shape[:-2].num_elements(), *x.shape[-2:]))
    return flat


def places(x, lead):
    """Find the row of `merge_leading(x)` that each head uses.

    Args:
        x: tensor (..., T, S) whose leading axes broadcast to `lead`.
        lead: int32 tensor, the leading axes of the scores.

    Returns:
        int32 tensor (R,).

    Example:
        >>> places(tf.zeros((2, 1, 5, 7)), tf.constant([2, 3])).numpy().tolist()
        [0, 0, 0, 1, 1, 1]
    """
    missing = tf.fill((tf.size(lead) - tf.rank(x) + 2,), 1)
    own = tf.concat([missing, tf.shape(x)[:-2]], 0)
    numbers = tf.reshape(tf.range(tf.reduce_prod(own)), own)
    return tf.reshape(tf.broadcast_to(numbers, lead), (-1,))


class TensorTerm:
    """A bias that is a tensor.

    Args:
        bias: float tensor whose leading axes broadcast to `lead`, (..., T, S).
        lead: int32 tensor, the leading axes of the scores.

    Attributes:
        tensors: list of the tensors with a gradient, their leading axes merged.
        one_head: bool, whether a block must hold one head only.

    Example:
        >>> TensorTerm(tf.zeros((3, 5, 7)), tf.constant([2, 3])).at.numpy().tolist()
        [0, 1, 2, 0, 1, 2]
    """

    one_head = True  # which tells where the gradient belongs

    def __init__(self, bias, lead):
        self.tensors, self.at = [merge_leading(bias)], places(bias, lead)

    def block(self, rows, tensors, i, j):
        """The terms of one block, (r, t, S)."""
        return tf.gather(rows.queries.cut(tensors[0], 1, j), rows.heads.cut(self.at, 0, i))

    def start(self, rows):
        """State of the gradient before the first block: a list of tensors or TensorArrays."""
        count = shape_of(self.tensors[0])[0] * rows.queries.count
        return [rows.array(count, rows.queries.size, rows.source)]

    def add(self, rows, i, j, dscores, state):
        """Add the gradient of one block, (r, t, S)."""
        at = self.at[i] * rows.queries.count + j
        return [state[0].write(at, state[0].read(at) + dscores[0])]

    def finish(self, rows, state):
        """The gradients of `tensors`."""
        heads, *_ = shape_of(self.tensors[0])
        shape = heads, rows.queries.count, rows.queries.size, rows.source
        return [rows.queries.join(tf.reshape(state[0].stack(), shape), axis=1)]  # (.., T, S)


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
        (table,) = [*tensors, *self._constant]
        if self._shared:
            block = tf.gather(table, rows.heads.cut(self.at, 0, i))
        else:
            block = rows.rows_of(table, i, j)
        return spread(block, rows.first(j), rows.queries.size, rows.source)

    def start(self, rows):
        if not self.tensors:
            return []
        if self._shared:
            return [tf.zeros_like(self.tensors[0])]
        return [rows.query_rows(2 * self.most + 1)]

    def add(self, rows, i, j, dscores, state):
        if not state:
            return []
        terms = collect(dscores, rows.first(j), self.most, together=self._shared)
        if not self._shared:
            return [state[0].write(rows.number(i, j), terms)]
        heads = tf.expand_dims(rows.heads.cut(self.at, 0, i), 1)
        return [tf.tensor_scatter_nd_add(state[0], heads, terms)]

    def finish(self, rows, state):
        if not state or self._shared:
            return state
        return [rows.join_queries(state[0], 2 * self.most + 1)]
