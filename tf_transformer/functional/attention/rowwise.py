"""Attention of some heads and queries at a time, with all their keys or those in a window.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H head width,
D distances, W any width; r and t are the sizes of a block of heads and a block of queries; in a
window M tiles of t queries and s keys. Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import (
    Blocks,
    Grid,
    Part,
    even_size,
    larger,
    of_all,
    of_heads,
    of_pairs,
    of_queries,
    of_some_heads,
    recompute,
    smaller,
)
from tf_transformer.functional.attention.by_distance import ByDistance, collect, spread, terms_of
from tf_transformer.functional.attention.whole import (
    BLOCKED_SCORE,
    as_factor,
    attention_scores,
    blocked_or_future,
    dropout_factors,
    fold_in,
    product,
)
from tf_transformer.functional.tensors import merge_leading, shape_of, sliced, wide_dtype


def attend_by_rows(
    grid, q, k, v, blocked, bias, dropout, offset, keys_of=of_heads, future=lambda j: None
):
    """Softmax attention in blocks of heads and queries, each recomputed for its gradient."""
    # `offset(j)` is the position of the first key minus that of block j's first query, `future(j)`
    # is None or (t, S), added to the scores, and `keys_of` says how `k` and `v` are cut.
    inputs = {"q": of_queries(grid, q), "k": keys_of(grid, k), "v": keys_of(grid, v)}
    constants = {} if blocked is None else {"blocked": of_pairs(grid, blocked)}
    terms, fixed, _ = terms_of(bias, grid.dtype)
    part_of = {"bias": of_pairs, "scores": of_some_heads}  # the others are tables
    inputs |= {name: part_of.get(name, of_all)(grid, x) for name, x in terms.items()}
    constants |= {name: part_of[name](grid, x) for name, x in fixed.items()}

    def attend(i, j, future, q, k, v, blocked=None, bias=None, scores=None, **tables):
        term = bias
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
            most = shape_of(tables["value_table"])[0] // 2
            by_distance = collect(weights, offset(j), most)  # (r, t, D)
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
        inputs = sliced(q, -2, *rows), sliced(k, -2, *seen), sliced(v, -2, *seen)
        mask = _part_of_pairs(blocked, rows, seen)
        term = bias.from_query(start) if by_distance else _part_of_pairs(bias, rows, seen)
        draws = None if dropout is None else (dropout[0], fold_in(dropout[1], start))
        stripes.append(_attend(*inputs, mask, term, draws, most_scores, min(start, source)))
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
        return None if past is None else BLOCKED_SCORE * tf.cast(grid.future(j, past), grid.dtype)

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


def _part_of_pairs(x, rows, seen):
    """Slice both axes of a mask or bias (..., T, S), where they do not broadcast."""
    for axis, part in ((-2, rows), (-1, seen)):
        if x is not None and x.shape[axis] != 1:
            x = sliced(x, axis, *part)
    return x


class _Tiles:
    """Tiles of t queries, each with the keys from `before` positions before its first query on."""

    # Queries and keys are padded, so that the distance of a pair depends only on its place in the
    # tile. Padded keys are blocked.

    def __init__(self, length, source, window, causal, query_block):
        self.length, self.source = length, source
        size = even_size(length, query_block)
        self.queries = Blocks(size * -(-length // size), size)
        self.before = smaller(window, larger(length, source))
        after = 0 if causal else self.before
        self.num_keys = size + self.before + after
        self.num_padded_keys = self.queries.length + self.before + after
        distances = tf.range(self.num_keys) - self.before - tf.expand_dims(tf.range(size), 1)
        static = isinstance(length, int) and isinstance(source, int)
        self.all_reach_a_key = static and length <= source + window
        self._outside = (distances < -window) | (distances > (0 if causal else window))  # (t, s)

    def blocked(self, blocked):
        """Which pairs a mask, the window and the padding block, (..., M t, s)."""
        if blocked is None:
            blocked = tf.zeros((1, self.source), tf.bool)
        lengths = [1 if blocked.shape[-2] == 1 else self.length, self.source]
        blocked = tf.broadcast_to(blocked, [*shape_of(blocked)[:-2], *lengths])
        outside = tf.tile(self._outside, [self.queries.count, 1])
        return outside | self.of_pairs(blocked, True)

    def of_pairs(self, x, fill):
        """Cut the tiles out of a tensor (..., T or 1, S), (..., M t, s)."""
        size, count = self.queries.size, self.queries.count
        x = _padded(x, -1, self.before, self.num_padded_keys, fill)
        *lead, _, width = shape_of(x)
        if x.shape[-2] == 1:
            keys = tf.expand_dims(tf.range(count) * size, 1) + tf.range(self.num_keys)  # (M, s)
            tiles = tf.gather(tf.squeeze(x, -2), keys, axis=-1)  # (..., M, s)
            return tf.repeat(tiles, size, axis=-2)
        x = _padded(x, -2, 0, self.queries.length, fill)
        # Each tile starts t rows and t columns after the one before: a stride of the flat order.
        x = tf.reshape(x, [*lead, count * size * width])
        x = _padded(x, -1, 0, count * (size * width + size), fill)
        x = tf.reshape(x, [*lead, count, size * width + size])
        x = _padded(x, -1, 0, size * width)
        x = _padded(tf.reshape(x, [*lead, count, size, width]), -1, 0, self.num_keys)
        return tf.reshape(x, [*lead, count * size, self.num_keys])


def _padded(x, axis, before, length, fill=0):
    """Pad an axis in front, and pad or cut its end, to `length`."""
    sizes, pads = shape_of(x), [[0, 0] for _ in x.shape]
    size = smaller(sizes[axis], length - before)
    pads[axis] = [before, length - before - size]
    x = tf.pad(sliced(x, axis, 0, size), pads, constant_values=tf.cast(fill, x.dtype))
    sizes[axis] = length
    x.set_shape([n if isinstance(n, int) else None for n in sizes])
    return x


def _in_window(grid, x):
    """Padded keys or values (..., S', W): each tile needs the rows that it reaches, (r, s, W)."""
    # A row of the gradient is complete once the last tile that reaches it is done, so that only the
    # rows of one tile are carried along.
    x, size = merge_leading(x), grid.queries.size
    width = x.shape[-1]

    def cut(x, i, j):
        return sliced(grid.heads.cut(x, 0, i), -2, grid.queries.start(j), grid.num_keys)

    def start():
        reached = grid.array(grid.heads.count, grid.heads.size, grid.num_keys, width)
        return grid.array_of_rows(width), reached

    def add(state, gradient, i, j):
        done, reached = state
        total = reached.read(i) + gradient
        # Later tiles do not reach the first t of these keys.
        done = done.write(grid.number(i, j), sliced(total, -2, 0, size))
        later = sliced(total, -2, size, grid.num_keys - size)
        return done, reached.write(i, _padded(later, -2, 0, grid.num_keys))

    def finish(state):
        done, reached = state
        last = grid.join_heads(reached.stack(), grid.num_keys, width)
        last = sliced(last, -2, 0, grid.num_keys - size)
        return tf.concat([grid.join_rows(done, width), last], -2)

    return Part(x, cut, start, add, finish)


def windowed_attention(
    q, k, v, blocked, bias, *, window, causal, dropout, query_block, most_scores, compiled=False
):
    """Attention to the keys at most `window` positions away, "Self-Attention (restricted)"."""
    # "Attention Is All You Need", section 4 and table 1. A query without a free key averages all
    # values, as in `whole_attention`, but without dropout.
    tiles = _Tiles(shape_of(q)[-2], shape_of(k)[-2], window, causal, query_block)
    blocked_by_mask, blocked = blocked, tiles.blocked(blocked)  # (..., M t, s)
    near, one_head, offset = bias, False, -tiles.before
    if isinstance(bias, ByDistance):
        near = bias.within(window)
        offset += near.offset
    elif bias is not None:
        one_head, near = True, tiles.of_pairs(bias, 0)  # (..., M t, s)
    padded = (_padded(x, -2, tiles.before, tiles.num_padded_keys) for x in (k, v))
    inputs = _padded(q, -2, 0, tiles.queries.length), *padded
    grid = Grid(inputs[0], tiles.num_keys, most_scores, tiles.queries.size, one_head)
    inputs = (as_factor(x, compiled) for x in inputs)
    output = attend_by_rows(
        grid, *inputs, blocked, near, dropout, offset=lambda j: offset, keys_of=_in_window
    )
    output = _padded(output, -2, 0, tiles.length)  # (..., T, H_v)
    if blocked_by_mask is not None or not tiles.all_reach_a_key:
        average = tf.reduce_mean(tf.cast(v, grid.dtype), axis=-2, keepdims=True)  # (..., 1, H_v)
        if isinstance(bias, ByDistance):
            average += tf.cast(bias.mean_values(tiles.length, tiles.source), grid.dtype)
        alone = tf.reduce_all(blocked, -1, keepdims=True)  # (..., M t, 1)
        output = tf.where(_padded(alone, -2, 0, tiles.length), average, output)
    output.set_shape((*q.shape[:-1], v.shape[-1]))
    return tf.cast(output, q.dtype)
