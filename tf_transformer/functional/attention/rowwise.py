"""Rowwise attention: some heads and queries at a time, with all their keys.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H head width,
D distances; r and t are the sizes of a block of heads and a block of queries. Leading axes (batch,
heads) are "...".
"""

import itertools

import tensorflow as tf

from tf_transformer.functional.attention.blocks import (
    Blocks,
    even_size,
    join_grid,
    join_heads,
    merge_leading,
    over_blocks,
    places,
    shape_of,
    zeros_array,
)
from tf_transformer.functional.attention.by_distance import ByDistance, collect, spread
from tf_transformer.functional.attention.whole import (
    BLOCKED_SCORE,
    attention_scores,
    blocked_or_future,
)
from tf_transformer.functional.dropout import dropout_factors, fold_in


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


class TensorTerm:
    """A bias that is a tensor.

    Args:
        bias: float tensor whose leading axes broadcast to `lead`, (..., T, S).
        lead: int32 tensor, the leading axes of the scores.

    Attributes:
        tensors: list of the tensors with a gradient, their leading axes merged.
        one_head: bool, whether a block must hold one head only.
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


class Rows:
    """The inputs of one attention call, and the two loops over its blocks."""

    def __init__(
        self, q, k, v, lead, blocked, term, terms, tables, dropout, most_scores, past=None
    ):
        self.q, self.k, self.v = q, k, v
        self.blocked = None if blocked is None else merge_leading(blocked)
        self.blocked_at = None if blocked is None else places(blocked, lead)
        self.term, self.terms = term, terms
        self.key_table, self.value_table, self.from_first_query = tables
        self.scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], q.dtype))
        self.dropout, self.past = dropout, past
        (heads, length, _), self.source = shape_of(q), shape_of(k)[1]
        self.queries = Blocks(length, even_size(length, most_scores // self.source))
        together = most_scores // (self.queries.size * self.source)
        if term is not None and term.one_head:
            together = 1
        self.heads = Blocks(heads, even_size(heads, together))

    def forward(self):
        """Compute the output."""

        def block(i, j, future, outputs):
            _, _, v, weights, factors = self._block(i, j, future)
            dropped = weights if factors is None else weights * factors
            output = tf.matmul(dropped, v)
            if self.value_table is not None:
                output += tf.matmul(self._collect(dropped, j, self.value_table), self.value_table)
            return [outputs.write(self.number(i, j), output)]

        width = self.v.shape[-1]
        (outputs,) = self._over_blocks(block, self.query_rows(width))
        return self.join_queries(outputs, width)

    def backward(self, upstream, output):
        """Compute the gradients with respect to the inputs; each block is recomputed."""
        zero = tf.zeros((), self.q.dtype)

        def block(i, j, future, dq, dk, dv, dterm, dkeys, dvalues):
            q, k, v, weights, factors = self._block(i, j, future)
            up, out = self._not_seen(self.rows_of(upstream, i, j), i, j), self.rows_of(output, i, j)
            dropped, dweights = weights, tf.matmul(up, v, transpose_b=True)  # (r, t, S)
            if self.value_table is not None:
                dweights += self._spread(up, self.value_table, j)
            if factors is not None:
                dropped, dweights = weights * factors, dweights * factors
            dscores = weights * (dweights - tf.reduce_sum(up * out, axis=-1, keepdims=True))
            if self.blocked is not None:  # a row without a free key has nonzero weights
                dscores = tf.where(self._blocked(i, j), zero, dscores)
            dq_rows = tf.matmul(dscores, k)
            if self.key_table is not None:
                by_distance = self._collect(dscores, j, self.key_table)
                dq_rows += tf.matmul(by_distance, self.key_table)
                dkeys = [x + _over_rows(by_distance, q * self.scale) for x in dkeys]
            dq = dq.write(self.number(i, j), dq_rows * self.scale)
            dk = dk.write(i, dk.read(i) + tf.matmul(dscores, q * self.scale, transpose_a=True))
            dv = dv.write(i, dv.read(i) + tf.matmul(dropped, up, transpose_a=True))
            if self.term is not None:
                dterm = self.term.add(self, i, j, dscores, dterm)
            dvalues = [x + _over_rows(self._collect(dropped, j, x), up) for x in dvalues]
            return [dq, dk, dv, dterm, dkeys, dvalues]

        width = self.k.shape[-1]
        state = [self.query_rows(width), self._key_rows(width), self._key_rows(self.v.shape[-1])]
        state.append([] if self.term is None else self.term.start(self))
        for table in (self.key_table, self.value_table):
            state.append([] if table is None else [tf.zeros_like(table)])
        dq, dk, dv, dterm, *dtables = self._over_blocks(block, *state)
        # One after the other, since joining holds the blocks and a copy of them in memory.
        gradients = [self.join_queries(dq, width)]
        with tf.control_dependencies(gradients):
            gradients.append(self._join_keys(dk, width))
        with tf.control_dependencies(gradients):
            gradients.append(self._join_keys(dv, self.v.shape[-1]))
        if self.term is not None:
            gradients += self.term.finish(self, dterm)
        return [*gradients, *itertools.chain(*dtables)]

    def _over_blocks(self, body, *state):
        """Run `body(i, j, future, ...)` for block `j` of the queries, block `i` of the heads."""

        def over_heads(j, *state):
            future = None if self.past is None else self._future(j)
            return over_blocks(self.heads.count, lambda i, *more: body(i, j, future, *more), state)

        return over_blocks(self.queries.count, over_heads, state)

    def _future(self, j):
        """Mask to add to the scores of query block `j`, the same for all heads, (t, S)."""
        queries = tf.expand_dims(self.past + self.queries.indices(j), 1)
        blocked = tf.cast(BLOCKED_SCORE, self.q.dtype)
        return tf.where(tf.range(self.source) > queries, blocked, tf.zeros_like(blocked))

    def _block(self, i, j, future):
        """Queries, keys, values, weights and dropout factors of one block."""
        q, k, v = self.rows_of(self.q, i, j), *(self.heads.cut(x, 0, i) for x in (self.k, self.v))
        term = None if self.term is None else self.term.block(self, self.terms, i, j)
        if self.key_table is not None:
            of_keys = self._spread(q * self.scale, self.key_table, j)
            term = of_keys if term is None else term + of_keys
        scores = attention_scores(q, k, self._blocked(i, j), term)
        weights = tf.nn.softmax(scores if future is None else scores + future)  # (r, t, S)
        if self.dropout is None:
            return q, k, v, weights, None
        rate, seed = self.dropout
        seed = fold_in(seed, self.number(i, j))
        return q, k, v, weights, dropout_factors(tf.shape(weights), weights.dtype, rate, seed)

    def _blocked(self, i, j):
        """The mask of one block; heads may share its rows."""
        if self.blocked is None:
            return None
        rows = self.heads.cut(self.blocked_at, 0, i)
        return tf.gather(self.queries.cut(self.blocked, 1, j), rows)

    def _not_seen(self, up, i, j):
        """Zeros for rows that an earlier block has counted."""
        for blocks, at, shape in ((self.queries, j, (-1, 1)), (self.heads, i, (-1, 1, 1))):
            if not isinstance(blocks.overlap, int) or blocks.overlap:
                up = tf.where(tf.reshape(blocks.seen(at), shape), tf.zeros((), up.dtype), up)
        return up

    def _collect(self, x, j, table):
        return collect(x, self.first(j), table.shape[0] // 2)  # (r, t, D)

    def _spread(self, x, table, j):
        """Products of rows (r, t, H) with a table (D, H), for each pair, (r, t, S)."""
        products = tf.matmul(x, table, transpose_b=True)  # (r, t, D)
        return spread(products, self.first(j), self.queries.size, self.source)

    def first(self, j):
        """Position of the first key minus that of the first query of block `j`."""
        return self.from_first_query - self.queries.start(j)

    def number(self, i, j):
        """The number of a block, in the order in which they are joined."""
        return i * self.queries.count + j

    def rows_of(self, x, i, j):
        """Query block `j` of head block `i`, (r, t, width)."""
        return self.queries.cut(self.heads.cut(x, 0, i), 1, j)

    def array(self, count, *shape):
        """A TensorArray of zeros."""
        return zeros_array(self.q.dtype, count, *shape)

    def query_rows(self, width):
        """A TensorArray for the blocks of a tensor (R, T, width)."""
        count = self.heads.count * self.queries.count
        return self.array(count, self.heads.size, self.queries.size, width)

    def _key_rows(self, width):
        return self.array(self.heads.count, self.heads.size, self.source, width)

    def join_queries(self, blocks, width):
        """Join blocks, in the order they were computed, into (R, T, width)."""
        return join_grid(blocks.stack(), self.heads, self.queries, width)

    def _join_keys(self, blocks, width):
        return join_heads(blocks.stack(), self.heads, self.source, width)  # (R, S, width)


def _over_rows(x, y):
    """x^T y, summed over heads and queries, (D, H)."""
    return tf.einsum("rtd,rth->dh", x, y)


# With `causal`, the queries are split into this many stripes, each with the keys up to its end:
# 9/16 of the work, compared with 1/2 for single rows.
_STRIPES = 8


def rowwise_attention(
    q, k, v, blocked=None, bias=None, *, causal=False, dropout=None, most_scores=2**20
):
    """Attention output with only a few of the T x S scores in memory, sized for the CPU cache.

    Softmax rows are independent, so a block of heads and queries with all their keys is a complete
    attention. The backward pass recomputes each block instead of storing it (Chen et al. 2016,
    "Training Deep Nets with Sublinear Memory Cost"). Two blocks are in flight, so that the matrix
    products of one overlap with the softmax of the other.

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        blocked: None, or a bool tensor that broadcasts to (..., T, S), True = blocked.
        bias: None, a float tensor of the rank of `q` that broadcasts to (..., T, S), or
            `ByDistance`.
        causal: bool, True also blocks key s for query t if s > t.
        dropout: None, or `(rate, seed)`: weights are dropped with probability rate, the same ones
            forward and backward; seed is an integer tensor (2,).
        most_scores: int, maximum number of scores in a block of more than one row.

    Returns:
        (..., T, H_v), in the dtype of `q`; computed in float32 (float64 for float64).
    """
    length, source = q.shape[-2], k.shape[-2]
    if causal and None in (length, source):
        causal, blocked = False, blocked_or_future(blocked, True, q, k)
    if not causal:
        return _attend(q, k, v, blocked, bias, dropout, most_scores)
    stripes = []
    step = -(-length // _STRIPES)
    for start in range(0, length, step):
        rows, seen = (start, min(step, length - start)), (0, min(start + step, length, source))
        stripe = _attend(
            _part(q, -2, *rows),
            _part(k, -2, *seen),
            _part(v, -2, *seen),
            None if blocked is None else _part(_part(blocked, -2, *rows), -1, *seen),
            _part_of_bias(bias, rows, seen),
            None if dropout is None else (dropout[0], fold_in(dropout[1], start)),
            most_scores,
            past=min(start, source),
        )
        stripes.append(stripe)
    output = tf.concat(stripes, axis=-2)
    if blocked is None:  # every query may attend to the first key
        return output
    # A query without a free key has been averaged over the keys of its stripe only.
    queries, keys = tf.range(length), tf.range(source)
    first_free = tf.reduce_min(tf.where(blocked, source, keys), axis=-1, keepdims=True)
    lonely = first_free > tf.expand_dims(queries, 1)  # (..., T, 1)
    average = tf.reduce_mean(v, axis=-2, keepdims=True)
    if isinstance(bias, ByDistance):
        average += tf.cast(bias.mean_values(length, source), average.dtype)
    return tf.where(lonely, average, output)


def _attend(q, k, v, blocked, bias, *options, **more):
    """Run both loops, with merged leading axes and a hand-written gradient."""
    lead, dtype = tf.shape(q)[:-2], q.dtype
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    by_distance = bias.cast(wide) if isinstance(bias, ByDistance) else None
    term = None
    if by_distance is None and bias is not None:
        term = TensorTerm(tf.cast(bias, wide), lead)
    elif by_distance is not None and by_distance.scores is not None:
        term = DistanceTerm(by_distance, lead)
    terms = [] if term is None else term.tensors
    tables = [] if by_distance is None else by_distance.tables

    @tf.custom_gradient
    def attend(q, k, v, *others):
        mine, rest = others[: len(terms)], others[len(terms) :]
        given = (None, None, 0)
        if by_distance is not None:
            given = (*by_distance.unpack(rest), by_distance.first)
        rows = Rows(q, k, v, lead, blocked, term, mine, given, *options, **more)
        output = rows.forward()
        return output, lambda upstream: rows.backward(upstream, output)

    output = attend(*(merge_leading(tf.cast(x, wide)) for x in (q, k, v)), *terms, *tables)
    output = tf.reshape(output, tf.concat([lead, tf.shape(output)[1:]], 0))  # (..., T, H_v)
    output.set_shape((*q.shape[:-1], v.shape[-1]))
    return tf.cast(output, dtype)


def _part(x, axis, start, size):
    """Slice one axis; return `x` if that axis is 1 and broadcasts."""
    if x.shape[axis] == 1:
        return x
    starts, sizes = [0] * x.shape.rank, shape_of(x)
    starts[axis], sizes[axis] = start, size
    return tf.slice(x, starts, sizes)  # not x[...], whose gradient runs on one thread


def _part_of_bias(bias, rows, seen):
    if bias is None:
        return None
    if isinstance(bias, ByDistance):
        return bias.from_query(rows[0])
    return _part(_part(bias, -2, *rows), -1, *seen)
