"""A bias that is a tensor, in rowwise attention.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, D distances;
r and t are the sizes of a block of heads and a block of queries.
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.leading_axes import merge_leading, places


class TensorTerm:
    """A bias that is a tensor."""

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
