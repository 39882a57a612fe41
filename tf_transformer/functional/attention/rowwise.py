"""Rowwise attention: some heads and queries at a time, with all their keys.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H head width,
D distances; r and t are the sizes of a block of heads and a block of queries. Leading axes (batch,
heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import (
    Grid,
    of_all,
    of_heads,
    of_pairs,
    of_queries,
    of_some_heads,
    recompute,
    shape_of,
    wide_dtype,
)
from tf_transformer.functional.attention.by_distance import ByDistance, collect, spread
from tf_transformer.functional.attention.whole import (
    BLOCKED_SCORE,
    attention_scores,
    blocked_or_future,
    product,
)
from tf_transformer.functional.dropout import dropout_factors, fold_in


def attend_by_rows(
    grid, q, k, v, blocked, bias, dropout, offset, keys_of=of_heads, future=lambda j: None
):
    """Softmax attention in blocks of heads and queries, each recomputed for its gradient."""
    # `offset(j)` is the position of the first key minus that of block j's first query, `future(j)`
    # is None or (t, S), added to the scores, and `keys_of` says how `k` and `v` are cut.
    inputs = {"q": of_queries(grid, q), "k": keys_of(grid, k), "v": keys_of(grid, v)}
    constants = {} if blocked is None else {"blocked": of_pairs(grid, blocked)}
    if isinstance(bias, ByDistance):
        bias = bias.cast(grid.dtype)
        if bias.scores is not None:
            scores = of_some_heads(grid, tf.expand_dims(bias.scores, -2))  # (..., 1, D)
            (inputs if bias.has_gradient else constants)["scores"] = scores
        tables = {"key_table": bias.keys, "value_table": bias.values}
        inputs |= {name: of_all(x) for name, x in tables.items() if x is not None}
    elif bias is not None:
        inputs["term"] = of_pairs(grid, tf.cast(bias, grid.dtype))

    def attend(i, j, future, q, k, v, blocked=None, term=None, scores=None, **tables):
        if scores is not None:
            term = spread(scores, offset(j), grid.queries.size, grid.num_keys)  # (r, t, S)
        if "key_table" in tables:
            scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], grid.dtype))
            products = tf.cast(q, grid.dtype) * scale
            products = tf.matmul(products, tables["key_table"], transpose_b=True)  # (r, t, D)
            of_keys = spread(products, offset(j), grid.queries.size, grid.num_keys)
            term = of_keys if term is None else term + of_keys
        scores = attention_scores(q, k, blocked, term)
        weights = tf.nn.softmax(scores if future is None else scores + future)  # (r, t, S)
        if dropout is not None:
            rate, seed = dropout
            seed = fold_in(seed, grid.number(i, j))
            weights *= dropout_factors(tf.shape(weights), grid.dtype, rate, seed)
        output = product(weights, v)
        if "value_table" in tables:
            by_distance = collect(weights, offset(j), bias.most)  # (r, t, D)
            output += tf.matmul(by_distance, tables["value_table"])
        return output

    return recompute(attend, grid, inputs, constants, width=v.shape[-1], per_queries=future)


# With `causal`, the queries are split into this many stripes, each with the keys up to its end:
# 9/16 of the work, compared with 1/2 for single rows.
_STRIPES = 8


def rowwise_attention(q, k, v, blocked, bias, *, causal, dropout, most_scores):
    """Attention with few of the T x S scores in memory, recomputed backward; Chen et al. 2016."""
    length, source = q.shape[-2], k.shape[-2]
    if causal and None in (length, source):
        causal, blocked = False, blocked_or_future(blocked, True, q, k)
    if not causal:
        return _attend(q, k, v, blocked, bias, dropout, most_scores)
    by_distance = isinstance(bias, ByDistance)
    stripes, step = [], -(-length // _STRIPES)
    for start in range(0, length, step):
        rows, seen = (start, min(step, length - start)), (0, min(start + step, length, source))
        stripe = _attend(
            _part(q, -2, *rows),
            _part(k, -2, *seen),
            _part(v, -2, *seen),
            _part_of_pairs(blocked, rows, seen),
            bias.from_query(start) if by_distance else _part_of_pairs(bias, rows, seen),
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
    average = tf.reduce_mean(tf.cast(v, wide_dtype(v)), axis=-2, keepdims=True)  # no overflow
    if by_distance:
        average += tf.cast(bias.mean_values(length, source), average.dtype)
    return tf.where(lonely, tf.cast(average, output.dtype), output)


def _attend(q, k, v, blocked, bias, dropout, most_scores, past=None):
    """Attention of queries that follow `past` others, or, with None, without `causal`."""
    by_distance = isinstance(bias, ByDistance)
    one_head = bias is not None and not by_distance
    grid = Grid(q, shape_of(k)[-2], most_scores, one_head=one_head)
    offset = bias.offset if by_distance else 0

    def future(j):
        if past is None:
            return None
        masked = tf.cast(BLOCKED_SCORE, grid.dtype)
        return tf.where(grid.future(j, past), masked, tf.zeros_like(masked))

    output = attend_by_rows(
        grid,
        *(tf.cast(x, grid.dtype) for x in (q, k, v)),
        blocked,
        bias,
        dropout,
        offset=lambda j: offset - grid.queries.start(j),
        future=future,
    )
    return tf.cast(output, q.dtype)


def _part(x, axis, start, size):
    """Slice one axis; return `x` if that axis is 1 and broadcasts."""
    if x.shape[axis] == 1:
        return x
    starts, sizes = [0] * x.shape.rank, shape_of(x)
    starts[axis], sizes[axis] = start, size
    return tf.slice(x, starts, sizes)  # not x[...], whose gradient runs on one thread


def _part_of_pairs(x, rows, seen):
    return None if x is None else _part(_part(x, -2, *rows), -1, *seen)
