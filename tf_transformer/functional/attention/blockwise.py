"""Blockwise attention: one tile of scores at a time, forward and backward.

Axes: T target (query) length, S source (key) length, H head width; t and s are the lengths of a
query block and a key block. Leading axes (batch, heads) are "...".
"""

import math

import tensorflow as tf

from tf_transformer.functional.attention.blocks import Blocks
from tf_transformer.functional.attention.product import as_factor, product
from tf_transformer.functional.attention.whole import (
    BLOCKED_SCORE,
    attention_scores,
)
from tf_transformer.functional.dropout import dropout_factors, fold_in


def blockwise_attention(
    q,
    k,
    v,
    blocked=None,
    bias=None,
    *,
    causal=False,
    dropout=None,
    query_block=256,
    key_block=512,
    compiled=False,
):
    """Attention output computed block by block, without materializing the T x S scores.

    For each block of queries, the running maximum m, sum l and output o of the softmax are rescaled
    whenever a block of keys has a larger maximum m': o <- o exp(m - m') + exp(s - m') V. Milakov
    and Gimelshein 2018, algorithm 3; Dao et al. 2022, "FlashAttention", algorithms 1 and 4. The
    backward pass recomputes each tile of scores instead of storing it. With `causal`, tiles that
    lie entirely in the future are skipped.

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        blocked: None, or a bool tensor that broadcasts to (..., T, S), True = blocked.
        bias: None, or a float tensor that broadcasts to (..., T, S), added to the scores.
        causal: bool, True also blocks key s for query t if s > t.
        dropout: None, or `(rate, seed)`: weights are dropped with probability rate, the same ones
            forward and backward; seed is an integer tensor (2,).
        query_block, key_block: int, maximum t and s.
        compiled: bool, whether this is compiled with XLA, which multiplies bfloat16 matrices as
            bfloat16.

    Returns:
        (..., T, H_v), in the dtype of `q`. Scores and sums are float32 (float64 for float64).

    Differs from the papers: a row with all keys blocked is the plain average of all values, as in
    `whole_attention`, but without dropout.

    Example:
        >>> q = tf.random.stateless_normal((1, 2, 7, 4), (1, 2))
        >>> blockwise_attention(q, q, q, causal=True, query_block=2, key_block=3).shape.as_list()
        [1, 2, 7, 4]
    """
    options = (blocked, causal, dropout, query_block, key_block, compiled)

    @tf.custom_gradient
    def attend(*inputs):
        tiles = _Tiles(inputs, *options)
        output, log_sums = tiles.forward()

        def gradient(upstream):
            gradients = tiles.backward(as_factor(upstream, compiled), output, log_sums)
            return [tf.cast(g, x.dtype) for g, x in zip(gradients, inputs, strict=True)]

        return tf.cast(output, q.dtype), gradient

    return attend(q, k, v) if bias is None else attend(q, k, v, bias)


class _Tiles:
    """The inputs of one attention call, and the forward and backward loops over its tiles."""

    def __init__(self, inputs, blocked, causal, dropout, query_block, key_block, compiled):
        self.dtype = tf.float64 if inputs[0].dtype == tf.float64 else tf.float32
        q, k, v, *bias = (as_factor(tensor, compiled) for tensor in inputs)
        self.q, self.k, self.v = q, k, v
        self.scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], self.dtype))
        self.bias = bias[0] if bias else None
        self.blocked, self.causal, self.dropout = blocked, causal, dropout
        self.queries = Blocks.of(q, -2, query_block)
        self.keys = Blocks.of(k, -2, key_block)

    def forward(self):
        """Return the output (..., T, H_v) and the log-sum-exp of each row, (..., T, 1)."""
        values = tf.cast(self.v, self.dtype)
        average = tf.reduce_mean(values, axis=-2, keepdims=True)  # (..., 1, H_v)

        def rows(i, outputs, log_sums):
            q = self.queries.cut(self.q, -2, i)  # (..., t, H)

            def add_keys(j, highest, total, output):
                scores = self._scores(q, i, j)  # (..., t, s)
                higher = tf.maximum(highest, tf.reduce_max(scores, -1, keepdims=True))
                weights, shrink = tf.exp(scores - higher), tf.exp(highest - higher)
                total = total * shrink + tf.reduce_sum(weights, -1, keepdims=True)
                if self.dropout is not None:
                    weights *= self._dropout_factors(weights, i, j)
                output = output * shrink + product(weights, self.keys.cut(self.v, -2, j))
                return j + 1, higher, total, output

            column = tf.zeros_like(q[..., :1], self.dtype)  # (..., t, 1)
            state = column - math.inf, column, column + tf.zeros_like(average)
            highest, total, output = self._over_keys(i, add_keys, state)
            free = highest > BLOCKED_SCORE
            # exp(score - inf) = 0: in the backward pass, a row without a free key has no scores.
            log_sum = tf.where(free, highest + tf.math.log(total), self._number(math.inf))
            output = tf.where(free, output / total, average)
            return i + 1, outputs.write(i, output), log_sums.write(i, log_sum)

        state = self._rows(self.queries, self.v.shape[-1]), self._rows(self.queries, 1)
        outputs, log_sums = self._over_queries(rows, state)
        return self.queries.join(outputs.stack()), self.queries.join(log_sums.stack())

    def backward(self, upstream, output, log_sums):
        """Return the gradients with respect to q, k, v and, if given, the bias."""
        wide = tf.cast(upstream, self.dtype)
        slopes = tf.reduce_sum(wide * output, -1, keepdims=True)  # (..., T, 1)

        def rows(i, dq, dk, dv, *dbias):
            q, up, slope, log_sum = (
                self.queries.cut(x, -2, i) for x in (self.q, upstream, slopes, log_sums)
            )
            # Rows already counted by the previous block.
            seen = tf.expand_dims(self.queries.seen(i), 1)  # (t, 1)
            log_sum = tf.where(seen, self._number(math.inf), log_sum)

            def add_keys(j, dq_rows, dk, dv, *dbias):
                k, v = (self.keys.cut(x, -2, j) for x in (self.k, self.v))
                weights = tf.exp(self._scores(q, i, j) - log_sum)  # (..., t, s)
                dropped, dweights = weights, product(up, v, transpose_b=True)
                if self.dropout is not None:
                    factors = self._dropout_factors(weights, i, j)
                    dropped, dweights = weights * factors, dweights * factors
                dscores = weights * (dweights - slope)
                dq_rows += product(dscores, k)
                dk = dk.write(j, dk.read(j) + product(dscores, q, transpose_a=True))
                dv = dv.write(j, dv.read(j) + product(dropped, up, transpose_a=True))
                dbias = [
                    tiles.write(i * self.keys.count + j, _sum_to(dscores, self.bias))
                    for tiles in dbias
                ]
                return j + 1, dq_rows, dk, dv, *dbias

            dq_rows, *others = self._over_keys(
                i, add_keys, (tf.zeros_like(q, self.dtype), dk, dv, *dbias)
            )
            return i + 1, dq.write(i, dq_rows), *others

        width = self.k.shape[-1]
        state = self._rows(self.queries, width), self._rows(self.keys, width, zeros=True)
        state += (self._rows(self.keys, self.v.shape[-1], zeros=True),)
        if self.bias is not None:
            state += (self._bias_tiles(),)
        dq, dk, dv, *dbias = self._over_queries(rows, state)
        dv = self.keys.join(dv.stack())  # (..., S, H_v)
        # Rows without a free key spread their gradient evenly over all values.
        shared = tf.where(tf.math.is_inf(log_sums), wide, self._number(0))
        dv += tf.reduce_sum(shared, -2, keepdims=True) / self._number(self.keys.length)
        dq, dk = self.queries.join(dq.stack()), self.keys.join(dk.stack())
        return [dq * self.scale, dk * self.scale, dv, *(self._join_tiles(tiles) for tiles in dbias)]

    def _over_queries(self, body, state):
        _, *state = tf.while_loop(
            lambda i, *_: i < self.queries.count, body, (tf.constant(0), *state)
        )
        return state

    def _over_keys(self, i, body, state):
        """Run `body` for the key blocks that query block `i` may attend to."""
        last = self.keys.count
        if self.causal:
            rows_end = self.queries.start(i) + self.queries.size
            last = tf.minimum(last, -(-rows_end // self.keys.size))
        elif last == 1:
            return body(tf.constant(0), *state)[1:]
        _, *state = tf.while_loop(lambda j, *_: j < last, body, (tf.constant(0), *state))
        return state

    def _scores(self, q, i, j):
        """Scores of query block `i` against key block `j`, (..., t, s)."""
        blocked = None if self.blocked is None else self._cut(self.blocked, i, j)
        if self.causal:
            future = self.keys.indices(j) > tf.expand_dims(self.queries.indices(i), 1)
            blocked = future if blocked is None else blocked | future
        bias = None if self.bias is None else self._cut(self.bias, i, j)
        scores = attention_scores(q, self.keys.cut(self.k, -2, j), blocked, bias)
        if not isinstance(self.keys.overlap, int) or self.keys.overlap:
            # Keys already counted by the previous block.
            scores = tf.where(self.keys.seen(j), self._number(-math.inf), scores)
        return scores

    def _cut(self, x, i, j):
        return self.keys.cut(self.queries.cut(x, -2, i), -1, j)

    def _dropout_factors(self, weights, i, j):
        rate, seed = self.dropout
        seed = fold_in(seed, i * self.keys.count + j)
        return dropout_factors(tf.shape(weights), self.dtype, rate, seed)

    def _number(self, number):
        return tf.cast(number, self.dtype)

    def _rows(self, blocks, width, zeros=False):
        """A TensorArray of row blocks, each (..., block, width)."""
        size = blocks.size if isinstance(blocks.size, int) else None
        rows = tf.TensorArray(
            self.dtype,
            blocks.count,
            clear_after_read=False,
            element_shape=(*self.q.shape[:-2], size, width),
        )
        if zeros:
            shape = tf.concat([[blocks.count], tf.shape(self.q)[:-2], [blocks.size, width]], 0)
            rows = rows.unstack(tf.zeros(shape, self.dtype))
        return rows

    def _bias_tiles(self):
        """A TensorArray with zeros for each tile of the bias, including future tiles."""
        tile = tf.stack([self.queries.size, self.keys.size])
        count = self.queries.count * self.keys.count
        shape = tf.concat([[count], tf.shape(self.bias)[:-2], tile], 0)
        tiles = tf.TensorArray(self.dtype, count, clear_after_read=False)
        return tiles.unstack(tf.zeros(shape, self.dtype))

    def _join_tiles(self, tiles):
        """Join the tiles of the bias into (..., T, S)."""
        tiles = tiles.stack()  # (count, ..., t, s)
        shape = tf.concat([[self.queries.count, self.keys.count], tf.shape(tiles)[1:]], 0)
        tiles = tf.reshape(tiles, shape)  # (T / t, S / s, ..., t, s)
        rank = self.bias.shape.rank
        axes = [1, 0, *range(2, rank), rank + 1, rank]
        rows = self.keys.join(tf.transpose(tiles, axes))  # (T / t, ..., S, t)
        return self.queries.join(tf.linalg.matrix_transpose(rows))  # (..., T, S)


def _sum_to(dscores, bias):
    """Sum over the leading axes along which the bias was broadcast."""
    sizes = {"s0": tf.shape(bias)[:-2], "s1": tf.shape(dscores)[:-2]}
    return tf.reduce_sum(dscores, tf.raw_ops.BroadcastGradientArgs(**sizes).r0, keepdims=True)
