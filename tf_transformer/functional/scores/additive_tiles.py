"""The loops of additive attention over tiles of queries and keys.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, U units; r, t and
s are the sizes of a block of heads, of queries and of keys.
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import (
    Blocks,
    even_size,
    join_grid,
    over_blocks,
    shape_of,
    zeros_array,
)
from tf_transformer.functional.attention.leading_axes import merge_leading, places
from tf_transformer.functional.attention.whole import BLOCKED_SCORE

# Elements of a tile (r, t, s, U), 2 MiB in float32: the two in flight fit into the caches of two
# cores. The keys are limited too: the gradient adds (s, U) and (t, U) numbers for each tile, few
# if neither s nor t is small.
_MOST_ELEMENTS, _MOST_KEYS = 2**19, 256


class AdditiveTiles:
    """The inputs of one call of additive attention, and the loops over its tiles.

    A block of rows has r heads and t queries, and its scores of all keys are joined before the
    softmax. The backward pass computes each tile again from the maximum and the sum of the rows.
    """

    def __init__(self, q, k, v, vector, lead, blocked, causal):
        self.q, self.k, self.v, self.vector = q, k, v, vector
        self.blocked = None if blocked is None else merge_leading(blocked)
        self.blocked_at = None if blocked is None else places(blocked, lead)
        self.causal = causal
        (heads, length, units), source = shape_of(q), shape_of(k)[1]
        pairs = max(1, _MOST_ELEMENTS // units)
        keys = even_size(source, min(pairs, _MOST_KEYS))
        queries = even_size(length, pairs // keys)
        self.keys, self.queries = Blocks(source, keys), Blocks(length, queries)
        self.heads = Blocks(heads, even_size(heads, pairs // (keys * queries)))

    def forward(self, weights_wanted):
        """Compute the output and, if wanted, the weights."""
        widths = [self.v.shape[-1], 1, 1, *([self.keys.length] if weights_wanted else [])]

        def rows(n, *arrays):
            i, j = n // self.queries.count, n % self.queries.count
            scores = self._row_scores(i, j)  # (r, t, S)
            highest = tf.reduce_max(scores, -1, keepdims=True)
            powers = tf.exp(scores - highest)
            total = tf.reduce_sum(powers, -1, keepdims=True)
            output = tf.matmul(powers, self.heads.cut(self.v, 0, i)) / total  # (r, t, H_v)
            results = [output, highest, total, *([powers / total] if weights_wanted else [])]
            return [a.write(n, x) for a, x in zip(arrays, results, strict=True)]

        arrays = [self._row_array(width) for width in widths]
        arrays = over_blocks(self.heads.count * self.queries.count, rows, arrays)
        joined = (
            join_grid(array.stack(), self.heads, self.queries, width)
            for array, width in zip(arrays, widths, strict=True)
        )
        output, highest, total, *weights = joined
        return [output, *weights], [highest, total]

    def backward(self, results, sums, upstream):
        """Compute the gradients with respect to q, k, v and the vector."""
        # What the softmax subtracts from the gradient of each weight, (R, T, 1).
        pairs = zip(results, upstream, strict=True)
        means = sum(tf.reduce_sum(x * up, -1, keepdims=True) for x, up in pairs)
        up_output, *up_weights = upstream
        zero = tf.zeros((), self.q.dtype)

        def tile(n, dq, dk, dv, dvector):
            n, m = n // self.keys.count, n % self.keys.count
            i, j = n // self.queries.count, n % self.queries.count
            hidden = self._hidden(i, j, m)  # (r, t, s, U)
            blocked = self._blocked(i, j, m)
            scores = self._masked(self._scores(hidden), blocked)
            v = self._keys_of(self.v, i, m)
            up, mean, highest, total = (self._rows_of(x, i, j) for x in (up_output, means, *sums))
            weights = self._not_seen(tf.exp(scores - highest) / total, i, j, m)  # (r, t, s)
            dweights = tf.matmul(up, v, transpose_b=True)
            for more in up_weights:
                dweights += self.keys.cut(self._rows_of(more, i, j), -1, m)
            dscores = weights * (dweights - mean)
            if blocked is not None:  # a row without a free key has nonzero weights
                dscores = tf.where(blocked, zero, dscores)
            # The gradient of tanh, before the vector multiplies it.
            slope = tf.expand_dims(dscores, -1) * (1.0 - tf.square(hidden))  # (r, t, s, U)
            at = i * self.keys.count + m
            dq = dq.write(n, dq.read(n) + tf.reduce_sum(slope, 2))
            dk = dk.write(at, dk.read(at) + tf.reduce_sum(slope, 1))
            dv = dv.write(at, dv.read(at) + tf.matmul(weights, up, transpose_a=True))
            flat = tf.reshape(dscores, (1, -1)), tf.reshape(hidden, (-1, self.vector.shape[0]))
            return [dq, dk, dv, dvector + tf.matmul(*flat)[0]]

        units, width = self.vector.shape[0], self.v.shape[-1]
        state = [self._row_array(units), self._key_array(units), self._key_array(width)]
        state.append(tf.zeros_like(self.vector))
        count = self.heads.count * self.queries.count * self.keys.count
        dq, dk, dv, dvector = over_blocks(count, tile, state)
        dq = join_grid(dq.stack(), self.heads, self.queries, units) * self.vector
        dk = join_grid(dk.stack(), self.heads, self.keys, units) * self.vector
        return [dq, dk, join_grid(dv.stack(), self.heads, self.keys, width), dvector]

    def _hidden(self, i, j, m):
        """The hidden layer of one tile, (r, t, s, U)."""
        q, k = self._rows_of(self.q, i, j), self._keys_of(self.k, i, m)
        return tf.tanh(tf.expand_dims(q, 2) + tf.expand_dims(k, 1))

    def _scores(self, hidden):
        """(r, t, s, U) -> (r, t, s)."""
        flat = tf.reshape(hidden, (-1, self.vector.shape[0]))
        scores = tf.matmul(flat, tf.expand_dims(self.vector, 1))
        return tf.reshape(scores, shape_of(hidden)[:-1])

    def _row_scores(self, i, j):
        """The scores of some queries and all keys, (r, t, S)."""

        def tile(m, columns):
            scores = self._scores(self._hidden(i, j, m))
            scores = self._masked(scores, self._blocked(i, j, m))
            return [columns.write(m, tf.linalg.matrix_transpose(scores))]

        shape = self.heads.size, self.keys.size, self.queries.size
        columns = [zeros_array(self.q.dtype, self.keys.count, *shape)]
        [columns] = over_blocks(self.keys.count, tile, columns)
        return tf.linalg.matrix_transpose(self.keys.join(columns.stack()))

    def _blocked(self, i, j, m):
        """The mask of one tile, None or bool, broadcasting to (r, t, s)."""
        blocked = None
        if self.blocked is not None:
            rows = tf.gather(
                self.queries.cut(self.blocked, 1, j), self.heads.cut(self.blocked_at, 0, i)
            )
            blocked = self.keys.cut(rows, 2, m)
        if self.causal:
            future = self.keys.indices(m) > tf.expand_dims(self.queries.indices(j), 1)
            blocked = future if blocked is None else blocked | future
        return blocked

    def _masked(self, scores, blocked):
        if blocked is None:
            return scores
        return tf.where(blocked, tf.cast(BLOCKED_SCORE, scores.dtype), scores)

    def _not_seen(self, weights, i, j, m):
        """Zeros for pairs that an earlier tile has counted."""
        shapes = (self.heads, i, (-1, 1, 1)), (self.queries, j, (-1, 1)), (self.keys, m, (-1,))
        for blocks, at, shape in shapes:
            if not isinstance(blocks.overlap, int) or blocks.overlap:
                seen = tf.reshape(blocks.seen(at), shape)
                weights = tf.where(seen, tf.zeros((), weights.dtype), weights)
        return weights

    def _rows_of(self, x, i, j):
        return self.queries.cut(self.heads.cut(x, 0, i), 1, j)  # (r, t, width)

    def _keys_of(self, x, i, m):
        return self.keys.cut(self.heads.cut(x, 0, i), 1, m)  # (r, s, width)

    def _row_array(self, width):
        count = self.heads.count * self.queries.count
        return zeros_array(self.q.dtype, count, self.heads.size, self.queries.size, width)

    def _key_array(self, width):
        count = self.heads.count * self.keys.count
        return zeros_array(self.q.dtype, count, self.heads.size, self.keys.size, width)
