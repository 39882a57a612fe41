"""The two loops of rowwise attention, over blocks of queries and blocks of heads.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H head width;
r and t are the sizes of a block of heads and a block of queries.
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import Blocks, shape_of
from tf_transformer.functional.attention.whole import BLOCKED_SCORE, attention_scores
from tf_transformer.functional.dropout import dropout_factors, fold_in


class Rows:
    """The inputs of one attention call, and the two loops over its blocks.

    Args:
        inputs: q (R, T, H), k (R, S, H), v (R, S, H_v) and, if given, the bias with its own
            leading axes merged; float32 or float64.
        lead: int tensor, the sizes of the leading axes merged into R.
        blocked: None, or a bool tensor that broadcasts to (*lead, T, S), True = blocked.
        bias: None, or the original bias; its shape tells which heads share it.
        dropout: None, or `(rate, seed)`.
        most_scores: int, maximum number of scores in a block of more than one row.
        past: None, or with `causal` an int, the number of keys before the first query.

    Example:
        >>> q = tf.zeros((2, 5, 4))
        >>> rows = Rows((q, q, q), tf.constant([2]), None, None, None, most_scores=10)
        >>> (rows.queries.size, rows.heads.size, rows.forward().shape.as_list())
        (2, 1, [2, 5, 4])
    """

    def __init__(self, inputs, lead, blocked, bias, dropout, most_scores, past=None):
        self.q, self.k, self.v, *others = inputs  # (R, T, H), (R, S, H), (R, S, H_v)
        self.bias = others[0] if others else None  # (its own leading axes merged, T, S)
        self.blocked = None if blocked is None else merge_leading(blocked)
        self.bias_at, self.blocked_at = (_places(x, lead) for x in (bias, blocked))
        self.dropout, self.past = dropout, past
        (heads, length, _), self.source = shape_of(self.q), shape_of(self.k)[1]
        self.queries = Blocks(length, _even(length, most_scores // self.source))
        # With a bias, a block holds one head only, which tells where the gradient belongs.
        together = most_scores // (self.queries.size * self.source) if bias is None else 1
        self.heads = Blocks(heads, _even(heads, together))

    def forward(self):
        """Compute the output.

        Returns:
            (R, T, H_v).
        """

        def block(i, j, future, outputs):
            _, _, v, weights, factors = self._block(i, j, future)
            dropped = weights if factors is None else weights * factors
            return [outputs.write(self._number(i, j), tf.matmul(dropped, v))]

        (outputs,) = self._over_blocks(block, self._query_rows(self.v))
        return self._join_queries(outputs, self.v)

    def backward(self, upstream, output):
        """Compute the gradients with respect to the inputs; each block is recomputed.

        Args:
            upstream: (R, T, H_v), the gradient with respect to the output.
            output: what `forward` returned.

        Returns:
            list with one tensor per input, of the same shape.
        """
        scale = tf.math.rsqrt(tf.cast(tf.shape(self.q)[-1], self.q.dtype))
        zero = tf.zeros((), self.q.dtype)

        def block(i, j, future, dq, dk, dv, *dbias):
            q, k, v, weights, factors = self._block(i, j, future)
            up, out = (self._rows_of(x, i, j) for x in (upstream, output))
            if not isinstance(self.queries.overlap, int) or self.queries.overlap:
                # Rows already counted by the previous block.
                seen = tf.expand_dims(self.queries.seen(j), 1)  # (t, 1)
                up = tf.where(seen, zero, up)
            dropped, dweights = weights, tf.matmul(up, v, transpose_b=True)  # (r, t, S)
            if factors is not None:
                dropped, dweights = weights * factors, dweights * factors
            dscores = weights * (dweights - tf.reduce_sum(up * out, axis=-1, keepdims=True))
            if self.blocked is not None:  # a row without a free key has nonzero weights
                dscores = tf.where(self._cut(self.blocked, self.blocked_at, i, j), zero, dscores)
            dq = dq.write(self._number(i, j), tf.matmul(dscores, k) * scale)
            dk = dk.write(i, dk.read(i) + tf.matmul(dscores, q * scale, transpose_a=True))
            dv = dv.write(i, dv.read(i) + tf.matmul(dropped, up, transpose_a=True))
            at = None if self.bias is None else self.bias_at[i] * self.queries.count + j
            dbias = [tiles.write(at, tiles.read(at) + dscores[0]) for tiles in dbias]
            return [dq, dk, dv, *dbias]

        state = [self._query_rows(self.q), self._key_rows(self.k), self._key_rows(self.v)]
        if self.bias is not None:
            count = shape_of(self.bias)[0] * self.queries.count
            state.append(self._array(count, self.queries.size, self.source))
        dq, dk, dv, *dbias = self._over_blocks(block, *state)
        # One after the other, since joining holds the blocks and a copy of them in memory.
        gradients = [self._join_queries(dq, self.q)]
        with tf.control_dependencies(gradients):
            gradients.append(self._join_keys(dk, self.k))
        with tf.control_dependencies(gradients):
            gradients.append(self._join_keys(dv, self.v))
        return [*gradients, *(self._join_bias(x) for x in dbias)]

    def _over_blocks(self, body, *state):
        """Run `body(i, j, future, ...)` for block `j` of the queries, block `i` of the heads."""

        def over_heads(j, *state):
            future = None if self.past is None else self._future(j)
            return _loop(self.heads.count, lambda i, *state: body(i, j, future, *state), state)

        return _loop(self.queries.count, over_heads, state)

    def _future(self, j):
        """Mask to add to the scores of query block `j`, the same for all heads, (t, S)."""
        queries = tf.expand_dims(self.past + self.queries.indices(j), 1)
        blocked = tf.cast(BLOCKED_SCORE, self.q.dtype)
        return tf.where(tf.range(self.source) > queries, blocked, tf.zeros_like(blocked))

    def _block(self, i, j, future):
        """Queries, keys, values, weights and dropout factors of one block."""
        q, k, v = self._rows_of(self.q, i, j), *(self.heads.cut(x, 0, i) for x in (self.k, self.v))
        blocked = self._cut(self.blocked, self.blocked_at, i, j)
        scores = attention_scores(q, k, blocked, self._cut(self.bias, self.bias_at, i, j))
        weights = tf.nn.softmax(scores if future is None else scores + future)  # (r, t, S)
        if self.dropout is None:
            return q, k, v, weights, None
        rate, seed = self.dropout
        seed = fold_in(seed, self._number(i, j))
        return q, k, v, weights, dropout_factors(tf.shape(weights), weights.dtype, rate, seed)

    def _number(self, i, j):
        return i * self.queries.count + j

    def _rows_of(self, x, i, j):
        """Query block `j` of head block `i`, (r, t, width)."""
        return self.queries.cut(self.heads.cut(x, 0, i), 1, j)

    def _cut(self, x, at, i, j):
        """The same for a mask or bias that heads may share; `at` maps heads to its rows."""
        if x is None:
            return None
        return self.queries.cut(tf.gather(x, self.heads.cut(at, 0, i)), 1, j)

    def _array(self, count, *shape):
        """A TensorArray of zeros; unwritten elements read as zeros if their shape is static."""
        static = [size if isinstance(size, int) else None for size in shape]
        array = tf.TensorArray(self.q.dtype, count, element_shape=static, clear_after_read=False)
        return array.unstack(tf.zeros((count, *shape), self.q.dtype)) if None in static else array

    def _query_rows(self, like):
        count = self.heads.count * self.queries.count
        return self._array(count, self.heads.size, self.queries.size, like.shape[-1])

    def _key_rows(self, like):
        shape = self.heads.size, self.source, like.shape[-1]
        return self._array(self.heads.count, *shape)

    def _join_queries(self, blocks, like):
        """Join blocks, in the order they were computed, into (R, T, width)."""
        counts, sizes = (self.heads.count, self.queries.count), (self.heads.size, self.queries.size)
        blocks = tf.reshape(blocks.stack(), (*counts, *sizes, like.shape[-1]))
        rows = self.queries.join(blocks, axis=1)  # (R / r, r, T, width)
        return self._join_heads(rows, self.queries.length, like.shape[-1])

    def _join_keys(self, blocks, like):
        return self._join_heads(blocks.stack(), self.source, like.shape[-1])  # (R, S, width)

    def _join_heads(self, blocks, length, width):
        """(R / r, r, length, width) -> (R, length, width)."""
        blocks = tf.reshape(blocks, (self.heads.count, self.heads.size, length * width))
        return tf.reshape(self.heads.join(blocks), (self.heads.length, length, width))

    def _join_bias(self, tiles):
        shape = shape_of(self.bias)[0], self.queries.count, self.queries.size, self.source
        return self.queries.join(tf.reshape(tiles.stack(), shape), axis=1)  # (.., T, S)


def _loop(count, body, state):
    """Run `state = body(i, *state)` for i < `count`; the products of one iteration overlap with the
    softmax of the next.
    """
    if isinstance(count, int) and count == 1:
        return body(0, *state)
    _, *state = tf.while_loop(
        lambda i, *_: i < count,
        lambda i, *state: (i + 1, *body(i, *state)),
        (tf.constant(0), *state),
        parallel_iterations=2,
    )
    return state


def _even(length, size):
    """Block size for the fewest blocks of at most `size`, all about equally large."""
    most = max if isinstance(length, int) and isinstance(size, int) else tf.maximum
    count = most(1, -(-length // most(1, size)))
    return most(1, -(-length // count))


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


def _places(x, lead):
    """int32 (R,): for each head of the whole batch, the row of `merge_leading(x)` it uses."""
    if x is None:
        return None
    missing = tf.fill((tf.size(lead) - tf.rank(x) + 2,), 1)
    own = tf.concat([missing, tf.shape(x)[:-2]], 0)
    numbers = tf.reshape(tf.range(tf.reduce_prod(own)), own)
    return tf.reshape(tf.broadcast_to(numbers, lead), (-1,))
