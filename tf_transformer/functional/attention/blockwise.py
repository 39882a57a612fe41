"""Blockwise attention: one tile of scores at a time, forward and backward.

Axes: T target (query) length, S source (key) length, H head width, D distances; t and s are the
lengths of a query block and a key block. Leading axes (batch, heads) are "...".
"""

import math

import tensorflow as tf

from tf_transformer.functional.attention.blocks import Blocks, over_blocks, sum_to
from tf_transformer.functional.attention.by_distance import (
    collect,
    shares_of_distances,
    spread,
    terms_of,
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


def blockwise_attention(
    q, k, v, blocked, bias, *, causal, dropout, query_block, key_block, compiled=False
):
    """Attention output computed block by block, without materializing the T x S scores."""
    # For each block of queries, the running maximum m, sum l and output o of the softmax are
    # rescaled whenever a block of keys has a larger maximum m': o <- o exp(m - m') + exp(s - m') V.
    # Milakov and Gimelshein 2018, algorithm 3; Dao et al. 2022, "FlashAttention", algorithms 1, 4.
    terms, constants, offset = terms_of(bias, wide_dtype(q))
    options = (offset, blocked, causal, dropout, query_block, key_block, compiled)

    @tf.custom_gradient
    def attend(q, k, v, *others):
        tiles = _Tiles(q, k, v, dict(zip(terms, others, strict=True)), constants, *options)
        output, log_sums = tiles.forward()

        def gradient(upstream):
            gradients = tiles.backward(as_factor(upstream, compiled), output, log_sums)
            inputs = (q, k, v, *others)
            return [tf.cast(g, x.dtype) for g, x in zip(gradients, inputs, strict=True)]

        return tf.cast(output, q.dtype), gradient

    return attend(q, k, v, *terms.values())


class _Tiles:
    """The inputs of one attention call, and the forward and backward loops over its tiles."""

    def __init__(self, q, k, v, terms, constants, offset, blocked, causal, dropout, *sizes):
        query_block, key_block, compiled = sizes
        self.dtype = wide_dtype(q)
        self.q, self.k, self.v = (as_factor(tensor, compiled) for tensor in (q, k, v))
        self.scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], self.dtype))
        self.terms, self.offset = terms, offset
        every = terms | constants
        self.bias, self.scores = every.get("bias"), every.get("scores")
        self.key_table, self.value_table = every.get("key_table"), every.get("value_table")
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
        """Return the gradients with respect to q, k, v and the terms."""
        wide = tf.cast(upstream, self.dtype)
        slopes = tf.reduce_sum(wide * output, -1, keepdims=True)  # (..., T, 1)

        def rows(i, dq, dk, dv, totals):
            q, up, slope, log_sum = (
                self.query_blocks.cut(x, -2, i) for x in (self.q, upstream, slopes, log_sums)
            )
            # Rows already counted by the previous block.
            seen, up_wide = tf.expand_dims(self.query_blocks.seen(i), 1), tf.cast(up, self.dtype)
            log_sum = tf.where(seen, self._number(math.inf), log_sum)

            def add_keys(j, dq_rows, dk, dv, totals):
                k, v = (self.key_blocks.cut(x, -2, j) for x in (self.k, self.v))
                weights = tf.exp(self._scores(q, i, j) - log_sum)  # (..., t, s)
                dropped, dweights = weights, product(up, v, transpose_b=True)
                if self.value_table is not None:
                    dweights += self._of_table(up_wide, self.value_table, i, j)
                if self.dropout is not None:
                    factors = self._dropout_factors(weights, i, j)
                    dropped, dweights = weights * factors, dweights * factors
                dscores = weights * (dweights - slope)
                dq_rows, new = dq_rows + product(dscores, k), {}
                if self.key_table is not None:
                    by_distance = self._collect(dscores, i, j, self.key_table)
                    dq_rows += tf.matmul(by_distance, self.key_table)
                    scaled = tf.cast(q, self.dtype) * self.scale
                    new["key_table"] = totals["key_table"] + _over_rows(by_distance, scaled)
                if self.value_table is not None:
                    by_distance = self._collect(dropped, i, j, self.value_table)
                    new["value_table"] = totals["value_table"] + _over_rows(by_distance, up_wide)
                if self.bias is not None:
                    tile = i * self.key_blocks.count + j
                    new["bias"] = totals["bias"].write(tile, sum_to(dscores, self.bias))
                if "scores" in totals:
                    of_heads = sum_to(dscores, self.scores)
                    most, at = shape_of(self.scores)[-1] // 2, self.offset_of(i, j)
                    new["scores"] = totals["scores"] + collect(of_heads, at, most, together=True)
                dk = dk.write(j, dk.read(j) + product(dscores, q, transpose_a=True))
                dv = dv.write(j, dv.read(j) + product(dropped, up, transpose_a=True))
                return dq_rows, dk, dv, new

            state = tf.zeros_like(q, self.dtype), dk, dv, totals
            dq_rows, *others = over_blocks(self._reached(i), add_keys, state)
            return dq.write(i, dq_rows), *others

        width = self.k.shape[-1]
        totals = {
            name: self._tiles_of_bias() if name == "bias" else tf.zeros_like(x)
            for name, x in self.terms.items()
        }
        state = (
            self.rows(self.query_blocks, width),
            self.rows(self.key_blocks, width, zeros=True),
            self.rows(self.key_blocks, self.v.shape[-1], zeros=True),
            totals,
        )
        dq, dk, dv, totals = over_blocks(self.query_blocks.count, rows, state)
        dv = self.key_blocks.join(dv.stack())  # (..., S, H_v)
        # Rows without a free key spread their gradient evenly over all values.
        shared = tf.where(tf.math.is_inf(log_sums), wide, self._number(0))
        dv += tf.reduce_sum(shared, -2, keepdims=True) / self._number(self.key_blocks.length)
        dq, dk = self.query_blocks.join(dq.stack()), self.key_blocks.join(dk.stack())
        if self.bias is not None:
            totals["bias"] = self._join_tiles(totals["bias"].stack())
        if self.value_table is not None:
            totals["value_table"] += _over_rows(self._shares(), shared)
        return [dq * self.scale, dk * self.scale, dv, *(totals[name] for name in self.terms)]

    def _tiles_of_bias(self):
        """A TensorArray of zeros for the gradient of the bias, which future tiles keep."""
        count = self.query_blocks.count * self.key_blocks.count
        tile = [self.query_blocks.size, self.key_blocks.size]
        shape = tf.concat([[count], tf.shape(self.bias)[:-2], tile], 0)
        array = tf.TensorArray(self.dtype, count, clear_after_read=False)
        return array.unstack(tf.zeros(shape, self.dtype))

    def _join_tiles(self, tiles):
        """Join tiles (count, ..., t, s) to the gradient of the bias, (..., T, S)."""
        counts = [self.query_blocks.count, self.key_blocks.count]
        tiles = tf.reshape(tiles, tf.concat([counts, tf.shape(tiles)[1:]], 0))
        rank = self.bias.shape.rank
        axes = [1, 0, *range(2, rank), rank + 1, rank]
        rows = self.key_blocks.join(tf.transpose(tiles, axes))  # (T / t, ..., S, t)
        return self.query_blocks.join(tf.linalg.matrix_transpose(rows))

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
        term = None if self.bias is None else self.cut(self.bias, i, j)
        if self.scores is not None:
            term = self._spread(self.scores, i, j)
        if self.key_table is not None:
            of_keys = self._of_table(tf.cast(q, self.dtype) * self.scale, self.key_table, i, j)
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

    def _spread(self, x, i, j):
        """Read numbers of distances (..., t or 1, D) for each pair, (..., t, s)."""
        return spread(x, self.offset_of(i, j), self.query_blocks.size, self.key_blocks.size)

    def _of_table(self, x, table, i, j):
        """Products of rows (..., t, H) with a table (D, H), for each pair, (..., t, s)."""
        return self._spread(tf.matmul(x, table, transpose_b=True), i, j)

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
