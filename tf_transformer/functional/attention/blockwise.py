"""Blockwise attention: one tile of scores at a time, forward and backward.

Axes: T target (query) length, S source (key) length, H head width, D distances; t and s are the
lengths of a query block and a key block. Leading axes (batch, heads) are "...".
"""

import math

import tensorflow as tf

from tf_transformer.functional.attention.blocks import Blocks, over_blocks, sum_to
from tf_transformer.functional.attention.by_distance import (
    ByDistance,
    collect,
    shares_of_distances,
    spread,
)
from tf_transformer.functional.attention.whole import (
    BLOCKED_SCORE,
    as_factor,
    attention_scores,
    dropout_factors,
    fold_in,
    product,
)
from tf_transformer.functional.tensors import shape_of, wide_dtype


class _DistanceTile:
    """The scores of `ByDistance`; see `_TensorTile` for its methods."""

    def __init__(self, by_distance):
        table = tf.expand_dims(by_distance.scores, -2)  # (..., 1, D)
        self.tensors = [table] if by_distance.has_gradient else []
        self._constant = [] if by_distance.has_gradient else [table]
        self.most = shape_of(table)[-1] // 2

    def block(self, tiles, tensors, i, j):
        (table,) = [*tensors, *self._constant]
        return spread(table, tiles.offset_of(i, j), tiles.query_blocks.size, tiles.key_blocks.size)

    def start(self, tiles):
        return [tf.zeros_like(x) for x in self.tensors]

    def add(self, tiles, i, j, dscores, state):
        return [
            total + collect(sum_to(dscores, total), tiles.offset_of(i, j), self.most, together=True)
            for total in state
        ]

    def finish(self, tiles, state):
        return list(state)


class _TensorTile:
    """A bias tensor that broadcasts to (..., T, S); `tensors` are those with a gradient."""

    def __init__(self, bias):
        self.tensors = [bias]

    def block(self, tiles, tensors, i, j):
        return tiles.cut(tensors[0], i, j)  # the terms of one tile, (..., t, s)

    def start(self, tiles):  # the state of the gradient, a list of tensors or TensorArrays
        tile = tf.stack([tiles.query_blocks.size, tiles.key_blocks.size])
        count = tiles.query_blocks.count * tiles.key_blocks.count
        shape = tf.concat([[count], tf.shape(self.tensors[0])[:-2], tile], 0)
        array = tf.TensorArray(tiles.dtype, count, clear_after_read=False)
        return [array.unstack(tf.zeros(shape, tiles.dtype))]  # future tiles keep their zeros

    def add(self, tiles, i, j, dscores, state):  # the state with the gradient of one tile
        return [state[0].write(i * tiles.key_blocks.count + j, sum_to(dscores, self.tensors[0]))]

    def finish(self, tiles, state):  # the gradients of `tensors`
        blocks = state[0].stack()  # (count, ..., t, s)
        counts = [tiles.query_blocks.count, tiles.key_blocks.count]
        shape = tf.concat([counts, tf.shape(blocks)[1:]], 0)
        blocks = tf.reshape(blocks, shape)  # (T / t, S / s, ..., t, s)
        rank = self.tensors[0].shape.rank
        axes = [1, 0, *range(2, rank), rank + 1, rank]
        rows = tiles.key_blocks.join(tf.transpose(blocks, axes))  # (T / t, ..., S, t)
        return [tiles.query_blocks.join(tf.linalg.matrix_transpose(rows))]  # (..., T, S)


def blockwise_attention(
    q, k, v, blocked, bias, *, causal, dropout, query_block, key_block, compiled=False
):
    """Attention output computed block by block, without materializing the T x S scores."""
    # For each block of queries, the running maximum m, sum l and output o of the softmax are
    # rescaled whenever a block of keys has a larger maximum m': o <- o exp(m - m') + exp(s - m') V.
    # Milakov and Gimelshein 2018, algorithm 3; Dao et al. 2022, "FlashAttention", algorithms 1, 4.
    wide = wide_dtype(q)
    by_distance = bias.cast(wide) if isinstance(bias, ByDistance) else None
    term = None
    if by_distance is None and bias is not None:
        term = _TensorTile(tf.cast(bias, wide))
    elif by_distance is not None and by_distance.scores is not None:
        term = _DistanceTile(by_distance)
    terms = [] if term is None else term.tensors
    tables = [] if by_distance is None else by_distance.tables
    options = (blocked, causal, dropout, query_block, key_block, compiled)

    @tf.custom_gradient
    def attend(q, k, v, *others):
        mine, rest = others[: len(terms)], others[len(terms) :]
        given = None, None, 0
        if by_distance is not None:
            given = *by_distance.unpack(rest), by_distance.offset
        tiles = _Tiles(q, k, v, term, mine, given, *options)
        output, log_sums = tiles.forward()

        def gradient(upstream):
            gradients = tiles.backward(as_factor(upstream, compiled), output, log_sums)
            inputs = (q, k, v, *others)
            return [tf.cast(g, x.dtype) for g, x in zip(gradients, inputs, strict=True)]

        return tf.cast(output, q.dtype), gradient

    return attend(q, k, v, *terms, *tables)


class _Tiles:
    """The inputs of one attention call, and the forward and backward loops over its tiles."""

    def __init__(self, q, k, v, term, terms, tables, blocked, causal, dropout, *sizes):
        query_block, key_block, compiled = sizes
        self.dtype = wide_dtype(q)
        self.q, self.k, self.v = (as_factor(tensor, compiled) for tensor in (q, k, v))
        self.scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], self.dtype))
        self.term, self.terms = term, terms
        self.key_table, self.value_table, self.offset = tables
        self.blocked, self.causal, self.dropout = blocked, causal, dropout
        self.query_blocks = Blocks(shape_of(q)[-2], query_block)
        self.key_blocks = Blocks(shape_of(k)[-2], key_block)

    def forward(self):
        """Return the output (..., T, H_v) and the log-sum-exp of each row, (..., T, 1)."""
        values = tf.cast(self.v, self.dtype)
        average = tf.reduce_mean(values, axis=-2, keepdims=True)  # (..., 1, H_v)
        if self.value_table is not None:
            average += tf.matmul(self._shares(), self.value_table)  # (..., T, H_v)

        def rows(i, outputs, log_sums):
            q = self.query_blocks.cut(self.q, -2, i)  # (..., t, H)

            def add_keys(j, highest, total, output):
                scores = self._scores(q, i, j)  # (..., t, s)
                higher = tf.maximum(highest, tf.reduce_max(scores, -1, keepdims=True))
                weights, shrink = tf.exp(scores - higher), tf.exp(highest - higher)
                total = total * shrink + tf.reduce_sum(weights, -1, keepdims=True)
                if self.dropout is not None:
                    weights *= self._dropout_factors(weights, i, j)
                more = product(weights, self.key_blocks.cut(self.v, -2, j))
                if self.value_table is not None:
                    by_distance = self._collect(weights, i, j, self.value_table)
                    more += tf.matmul(by_distance, self.value_table)
                return higher, total, output * shrink + more

            column = tf.zeros_like(q[..., :1], self.dtype)  # (..., t, 1)
            state = column - math.inf, column, column + tf.zeros_like(average[..., :1, :])
            highest, total, output = over_blocks(self._reached(i), add_keys, state)
            free = highest > BLOCKED_SCORE
            # exp(score - inf) = 0: in the backward pass, a row without a free key has no scores.
            log_sum = tf.where(free, highest + tf.math.log(total), self._number(math.inf))
            output = tf.where(free, output / total, self.query_blocks.cut(average, -2, i))
            return outputs.write(i, output), log_sums.write(i, log_sum)

        state = self.rows(self.query_blocks, self.v.shape[-1]), self.rows(self.query_blocks, 1)
        outputs, log_sums = over_blocks(self.query_blocks.count, rows, state)
        return self.query_blocks.join(outputs.stack()), self.query_blocks.join(log_sums.stack())

    def backward(self, upstream, output, log_sums):
        """Return the gradients with respect to q, k, v and, if given, the bias."""
        wide = tf.cast(upstream, self.dtype)
        slopes = tf.reduce_sum(wide * output, -1, keepdims=True)  # (..., T, 1)

        def rows(i, dq, dk, dv, *others):
            q, up, slope, log_sum = (
                self.query_blocks.cut(x, -2, i) for x in (self.q, upstream, slopes, log_sums)
            )
            # Rows already counted by the previous block.
            seen, up_wide = tf.expand_dims(self.query_blocks.seen(i), 1), tf.cast(up, self.dtype)
            log_sum = tf.where(seen, self._number(math.inf), log_sum)

            def add_keys(j, dq_rows, dk, dv, dterm, dkeys, dvalues):
                k, v = (self.key_blocks.cut(x, -2, j) for x in (self.k, self.v))
                weights = tf.exp(self._scores(q, i, j) - log_sum)  # (..., t, s)
                dropped, dweights = weights, product(up, v, transpose_b=True)
                if self.value_table is not None:
                    dweights += self._spread(up_wide, self.value_table, i, j)
                if self.dropout is not None:
                    factors = self._dropout_factors(weights, i, j)
                    dropped, dweights = weights * factors, dweights * factors
                dscores = weights * (dweights - slope)
                dq_rows += product(dscores, k)
                if self.key_table is not None:
                    by_distance = self._collect(dscores, i, j, self.key_table)
                    dq_rows += tf.matmul(by_distance, self.key_table)
                    scaled = tf.cast(q, self.dtype) * self.scale
                    dkeys = [x + _over_rows(by_distance, scaled) for x in dkeys]
                dk = dk.write(j, dk.read(j) + product(dscores, q, transpose_a=True))
                dv = dv.write(j, dv.read(j) + product(dropped, up, transpose_a=True))
                if self.term is not None:
                    dterm = self.term.add(self, i, j, dscores, dterm)
                dvalues = [
                    x + _over_rows(self._collect(dropped, i, j, x), up_wide) for x in dvalues
                ]
                return dq_rows, dk, dv, dterm, dkeys, dvalues

            state = tf.zeros_like(q, self.dtype), dk, dv, *others
            dq_rows, *others = over_blocks(self._reached(i), add_keys, state)
            return dq.write(i, dq_rows), *others

        width = self.k.shape[-1]
        state = self.rows(self.query_blocks, width), self.rows(self.key_blocks, width, zeros=True)
        state += (
            self.rows(self.key_blocks, self.v.shape[-1], zeros=True),
            [] if self.term is None else self.term.start(self),
            *([] if x is None else [tf.zeros_like(x)] for x in (self.key_table, self.value_table)),
        )
        dq, dk, dv, dterm, dkeys, dvalues = over_blocks(self.query_blocks.count, rows, state)
        dv = self.key_blocks.join(dv.stack())  # (..., S, H_v)
        # Rows without a free key spread their gradient evenly over all values.
        shared = tf.where(tf.math.is_inf(log_sums), wide, self._number(0))
        dv += tf.reduce_sum(shared, -2, keepdims=True) / self._number(self.key_blocks.length)
        dq, dk = self.query_blocks.join(dq.stack()), self.key_blocks.join(dk.stack())
        dterm = [] if self.term is None else self.term.finish(self, dterm)
        dvalues = [x + _over_rows(self._shares(), shared) for x in dvalues]
        return [dq * self.scale, dk * self.scale, dv, *dterm, *dkeys, *dvalues]

    def _reached(self, i):
        """The number of key blocks that query block `i` may attend to."""
        count = self.key_blocks.count
        if not self.causal:
            return count
        rows_end = self.query_blocks.start(i) + self.query_blocks.size
        return tf.minimum(count, -(-rows_end // self.key_blocks.size))

    def _scores(self, q, i, j):
        """Scores of query block `i` against key block `j`, (..., t, s)."""
        blocked = None if self.blocked is None else self.cut(self.blocked, i, j)
        if self.causal:
            future = self.key_blocks.indices(j) > tf.expand_dims(self.query_blocks.indices(i), 1)
            blocked = future if blocked is None else blocked | future
        term = None if self.term is None else self.term.block(self, self.terms, i, j)
        if self.key_table is not None:
            of_keys = self._spread(tf.cast(q, self.dtype) * self.scale, self.key_table, i, j)
            term = of_keys if term is None else term + of_keys
        scores = attention_scores(q, self.key_blocks.cut(self.k, -2, j), blocked, term)
        if not isinstance(self.key_blocks.overlap, int) or self.key_blocks.overlap:
            # Keys already counted by the previous block.
            scores = tf.where(self.key_blocks.seen(j), self._number(-math.inf), scores)
        return scores

    def cut(self, x, i, j):
        """Slice one tile, (..., t, s)."""
        return self.key_blocks.cut(self.query_blocks.cut(x, -2, i), -1, j)

    def _dropout_factors(self, weights, i, j):
        rate, seed = self.dropout
        seed = fold_in(seed, i * self.key_blocks.count + j)
        return dropout_factors(tf.shape(weights), self.dtype, rate, seed)

    def _number(self, number):
        return tf.cast(number, self.dtype)

    def rows(self, blocks, width, zeros=False):
        """A TensorArray of row blocks, each (..., block, width)."""
        size = blocks.size if isinstance(blocks.size, int) else None
        options = {"clear_after_read": False, "element_shape": (*self.q.shape[:-2], size, width)}
        rows = tf.TensorArray(self.dtype, blocks.count, **options)
        if zeros:
            shape = tf.concat([[blocks.count], tf.shape(self.q)[:-2], [blocks.size, width]], 0)
            rows = rows.unstack(tf.zeros(shape, self.dtype))
        return rows

    def offset_of(self, i, j):
        """Position of the first key of a tile minus position of its first query."""
        return self.offset + self.key_blocks.start(j) - self.query_blocks.start(i)

    def _collect(self, x, i, j, table):
        return collect(x, self.offset_of(i, j), table.shape[0] // 2)  # (..., t, D)

    def _spread(self, x, table, i, j):
        """Products of rows (..., t, H) with a table (D, H), for each pair, (..., t, s)."""
        products = tf.matmul(x, table, transpose_b=True)  # (..., t, D)
        return spread(products, self.offset_of(i, j), self.query_blocks.size, self.key_blocks.size)

    def _shares(self):
        most = self.value_table.shape[0] // 2
        lengths = self.query_blocks.length, self.key_blocks.length
        shares = shares_of_distances(self.offset, *lengths, most)
        return tf.cast(shares, self.dtype)  # (T, D)


def _over_rows(x, y):
    """x^T y, summed over the leading axes, (D, H)."""
    x = tf.broadcast_to(x, tf.concat([tf.shape(y)[:-1], tf.shape(x)[-1:]], 0))
    flat = (tf.reshape(m, (-1, m.shape[-1])) for m in (x, y))
    return tf.matmul(*flat, transpose_a=True)
