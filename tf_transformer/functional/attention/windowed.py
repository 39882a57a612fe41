"""Windowed attention: each query attends to the keys near it, in time linear in the length.

Axes: B the first axis, T target (query) length, S source (key) length, H head width; M tiles of t
queries and s keys; b entries of the first axis are computed at a time. Other leading axes (heads)
are "...".
"""

import math

import tensorflow as tf

from tf_transformer.functional.attention.blocks import Blocks, even_size, over_blocks, shape_of
from tf_transformer.functional.attention.by_distance import ByDistance, collect, spread
from tf_transformer.functional.attention.whole import as_factor, attention_scores, product
from tf_transformer.functional.dropout import dropout_factors, fold_in


class Tiles:
    """Tiles of t queries, each with the keys from `before` positions before its first query on.

    Queries and keys are padded, so that all tiles look alike: the distance s - t of a pair depends
    only on its place in the tile. Padded keys are blocked.
    """

    def __init__(self, length, source, window, causal, query_block):
        self.length, self.source = length, source
        size = even_size(length, query_block)
        self.queries = Blocks(size * -(-length // size), size)
        self.before = _smaller(window, _larger(length, source))
        after = 0 if causal else self.before
        self.keys = size + self.before + after
        self.all_keys = self.queries.length + self.before + after
        distances = tf.range(self.keys) - self.before - tf.expand_dims(tf.range(size), 1)
        lengths = length, source
        self.all_reach_a_key = all(isinstance(x, int) for x in lengths) and (
            length <= source + window
        )
        self._outside = (distances < -window) | (distances > (0 if causal else window))  # (t, s)

    def padded_queries(self, x):
        """(..., T, H) -> (..., M t, H)."""
        return _padded(x, -2, 0, self.queries.length)

    def padded_keys(self, x):
        """(..., S, H) -> (..., (M - 1) t + s, H), without the keys that no query reaches."""
        return _padded(x, -2, self.before, self.all_keys)

    def unpadded(self, x):
        """(..., M t, H) -> (..., T, H)."""
        return _padded(x, -2, 0, self.length)

    def blocked(self, blocked, rank):
        """Which pairs a mask, the window and the padding block."""
        if blocked is None:
            blocked = tf.zeros((1, self.source), tf.bool)
        while blocked.shape.rank < rank:
            blocked = tf.expand_dims(blocked, 0)
        lengths = [self.length, self.source]
        if blocked.shape[-2] == 1:
            lengths[0] = 1
        blocked = tf.broadcast_to(blocked, [*shape_of(blocked)[:-2], *lengths])
        return self._outside | self.of_pairs(blocked, True)

    def of_pairs(self, x, fill):
        """Cut the tiles out of a tensor."""
        size, count = self.queries.size, self.queries.count
        x = _padded(x, -1, self.before, self.all_keys, fill)
        if x.shape[-2] == 1:
            keys = tf.expand_dims(tf.range(count) * size, 1) + tf.range(self.keys)  # (M, s)
            return tf.expand_dims(tf.gather(tf.squeeze(x, -2), keys, axis=-1), -2)
        x = _padded(x, -2, 0, self.queries.length, fill)
        # Each tile starts t rows and t columns after the one before: a stride of the flat order.
        *lead, _, width = shape_of(x)
        x = tf.reshape(x, [*lead, count * size * width])
        x = _padded(x, -1, 0, count * (size * width + size), fill)
        x = tf.reshape(x, [*lead, count, size * width + size])
        x = _padded(x, -1, 0, size * width)
        return _padded(tf.reshape(x, [*lead, count, size, width]), -1, 0, self.keys)

    def of_distances(self, scores, first):
        """Spread the scores of `ByDistance` over a tile."""
        scores = tf.expand_dims(tf.expand_dims(scores, -2), -2)  # (..., 1, 1, D)
        return spread(scores, first - self.before, self.queries.size, self.keys)

    def rows(self, x):
        """Join the rows of the tiles, (..., M, t) -> (..., T, 1)."""
        *lead, count, size = shape_of(x)
        return self.unpadded(tf.reshape(x, [*lead, count * size, 1]))


def _padded(x, axis, before, length, fill=0):
    """Pad an axis in front, and pad or cut its end, to `length`."""
    axis %= x.shape.rank
    sizes = shape_of(x)
    sizes[axis] = _smaller(sizes[axis], length - before)
    after = length - before - sizes[axis]
    x = tf.slice(x, [0] * x.shape.rank, sizes)  # not x[...], whose gradient runs on one thread
    pads = [[before, after] if i == axis else [0, 0] for i in range(x.shape.rank)]
    x = tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
    sizes[axis] = length
    x.set_shape([n if isinstance(n, int) else None for n in sizes])
    return x


def _smaller(x, y):
    return min(x, y) if isinstance(x, int) and isinstance(y, int) else tf.minimum(x, y)


def _larger(x, y):
    return max(x, y) if isinstance(x, int) and isinstance(y, int) else tf.maximum(x, y)


class Windows:
    """The inputs of one attention call, and the loops over its tiles."""

    def __init__(self, tiles, q, k, v, constants, others, first, dropout, most_scores):
        self.tiles, self.queries = tiles, tiles.queries
        self.inputs = {"q": q, "k": k, "v": v, **others}
        self.constants = constants
        self.first, self.dropout = first - tiles.before, dropout
        self.dtype = tf.float64 if q.dtype == tf.float64 else tf.float32
        entries, *self.heads, _, _ = shape_of(q)
        scores = math.prod(self.heads) * self.queries.size * tiles.keys
        self.entries = Blocks(entries, even_size(entries, most_scores // scores))

    def forward(self):
        """Compute the output."""
        width = self.inputs["v"].shape[-1]

        def entries(i, outputs):
            inputs = self._entries(i)

            def tile(j, rows):
                return [rows.write(j, self._attend(i, j, **self._tile(inputs, j)))]

            (rows,) = over_blocks(self.queries.count, tile, [self._rows_of_tiles(width)])
            return [outputs.write(i, self.queries.join(rows.stack()))]

        state = [self._rows_of_entries(self.queries.length, width)]
        (outputs,) = over_blocks(self.entries.count, entries, state)
        return self._join_entries(outputs, self.queries.length, width)

    def backward(self, upstream):
        """Compute the gradients with respect to the inputs; each tile is recomputed."""
        width, value_width = (self.inputs[name].shape[-1] for name in "kv")
        size, rest = self.queries.size, self.tiles.keys - self.queries.size

        def entries(i, dq, dkv, others):
            inputs, up = self._entries(i), self._not_seen(i, self.entries.cut(upstream, 0, i))

            def tile(j, dq, dkv, reached, others):
                mine = self._tile(inputs, j)
                watched = {name: mine[name] for name in self.inputs}
                with tf.GradientTape() as tape:
                    tape.watch(watched)
                    output = self._attend(i, j, **mine)
                new = tape.gradient(output, watched, self.queries.cut(up, -2, j))
                new = {name: tf.cast(x, self.dtype) for name, x in new.items()}
                reached += tf.concat([new["k"], new["v"]], -1)  # (b, ..., s, H + H_v)
                # Later tiles do not reach the first t of these keys.
                dq, dkv = dq.write(j, new["q"]), dkv.write(j, _rows(reached, 0, size))
                others = {name: self._add(i, j, name, x, new[name]) for name, x in others.items()}
                return [dq, dkv, _pad(_rows(reached, size, rest), size), others]

            state = [self._rows_of_tiles(w) for w in (width, width + value_width)]
            shape = [self.entries.size, *self.heads, self.tiles.keys, width + value_width]
            state += [tf.zeros(shape, self.dtype), others]
            *rows, reached, others = over_blocks(self.queries.count, tile, state)
            rows_q, rows_kv = (self.queries.join(x.stack()) for x in rows)
            rows_kv = tf.concat([rows_kv, _rows(reached, 0, rest)], -2)
            return [dq.write(i, rows_q), dkv.write(i, rows_kv), others]

        sizes = (self.queries.length, width), (self.tiles.all_keys, width + value_width)
        state = [self._rows_of_entries(*size) for size in sizes]
        state.append({name: self._zeros(name) for name in self.inputs if name not in "qkv"})
        *arrays, others = over_blocks(self.entries.count, entries, state)
        dq, dkv = (self._join_entries(x, *size) for x, size in zip(arrays, sizes, strict=True))
        others = [self._finish(name, x) for name, x in others.items()]
        return [dq, *tf.split(dkv, [width, value_width], -1), *others]

    def _entries(self, i):
        """The inputs of block `i` of the first axis; tables stay whole."""
        inputs = {**self.inputs, **self.constants}
        return {
            name: x if name in ("keys", "values") else self.entries.cut(x, 0, i)
            for name, x in inputs.items()
        }

    def _tile(self, inputs, j):
        """The part of these inputs for tile `j`."""
        cuts = {
            "q": lambda x: self.queries.cut(x, -2, j),
            "k": lambda x: _rows(x, self.queries.start(j), self.tiles.keys),
            "v": lambda x: _rows(x, self.queries.start(j), self.tiles.keys),
            "blocked": lambda x: tf.gather(x, j, axis=-3),
            "term": lambda x: tf.gather(x, 0 if x.shape[-3] == 1 else j, axis=-3),
        }
        return {name: cuts[name](x) if name in cuts else x for name, x in inputs.items()}

    def _attend(self, i, j, q, k, v, blocked, term=None, keys=None, values=None):
        """The output of one tile, (b, ..., t, H_v)."""
        if keys is not None:
            scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], self.dtype))
            of_keys = tf.matmul(tf.cast(q, self.dtype) * scale, keys, transpose_b=True)
            of_keys = spread(of_keys, self.first, self.queries.size, self.tiles.keys)
            term = of_keys if term is None else term + of_keys
        weights = tf.nn.softmax(attention_scores(q, k, blocked, term))  # (b, ..., t, s)
        if self.dropout is not None:
            rate, seed = self.dropout
            seed = fold_in(seed, i * self.queries.count + j)
            weights *= dropout_factors(tf.shape(weights), self.dtype, rate, seed)
        output = product(weights, v)
        if values is not None:
            output += tf.matmul(collect(weights, self.first, values.shape[0] // 2), values)
        return output

    def _not_seen(self, i, up):
        """Zeros for entries that an earlier block has counted."""
        if isinstance(self.entries.overlap, int) and self.entries.overlap == 0:
            return up
        seen = tf.reshape(self.entries.seen(i), [-1] + [1] * (up.shape.rank - 1))
        return tf.where(seen, tf.zeros((), up.dtype), up)

    def _zeros(self, name):
        """The gradient of a term or a table before the first tile."""
        x = self.inputs[name]
        if name != "term":
            return tf.zeros_like(x)
        _, *heads, tiles, size, keys = shape_of(x)
        blocks, entries = self._blocks(x)
        shape = [entries, *heads, size, keys]
        zeros = tf.zeros([blocks * tiles, *shape], self.dtype)
        return self._array(blocks * tiles, *shape).unstack(zeros)

    def _add(self, i, j, name, total, new):
        """Add the gradient of one tile."""
        if name != "term":
            return total + new
        term = self.inputs[name]
        at = 0 if term.shape[0] == 1 else i * shape_of(term)[-3]
        at += 0 if term.shape[-3] == 1 else j
        return total.write(at, total.read(at) + new)

    def _finish(self, name, total):
        """The gradient of a term or a table."""
        if name != "term":
            return total
        term = self.inputs[name]
        _, *heads, tiles, size, keys = shape_of(term)
        blocks, entries = self._blocks(term)
        total = tf.reshape(total.stack(), [blocks, tiles, entries, *heads, size, keys])
        last = total.shape.rank - 2
        total = tf.transpose(total, [0, *range(2, last), 1, last, last + 1])
        if term.shape[0] != 1:
            total = self.entries.join(tf.reshape(total, [blocks, entries, -1]))
        return tf.reshape(total, tf.shape(term))

    def _blocks(self, term):
        """Number and size of the blocks of the first axis of a term, which may be 1."""
        return (1, 1) if term.shape[0] == 1 else (self.entries.count, self.entries.size)

    def _rows_of_tiles(self, width):
        shape = self.entries.size, *self.heads, self.queries.size, width
        return self._array(self.queries.count, *shape)

    def _rows_of_entries(self, length, width):
        shape = self.entries.size, *self.heads, length, width
        return self._array(self.entries.count, *shape)

    def _array(self, count, *shape):
        static = [size if isinstance(size, int) else None for size in shape]
        return tf.TensorArray(self.dtype, count, element_shape=static, clear_after_read=False)

    def _join_entries(self, array, length, width):
        """Join blocks of the first axis into (B, ..., length, width)."""
        joined = tf.reshape(array.stack(), [self.entries.count, self.entries.size, -1])
        joined = self.entries.join(joined)
        return tf.reshape(joined, [self.entries.length, *self.heads, length, width])


def _rows(x, start, size):
    """Slice rows, (..., n, H) -> (..., size, H)."""
    *lead, _, width = shape_of(x)
    x = tf.slice(x, [*(0 for _ in lead), start, 0], [*lead, size, width])
    x.set_shape([n if isinstance(n, int) else None for n in (*lead, size, width)])
    return x


def _pad(x, after):
    """Pad rows of zeros at the end."""
    return tf.pad(x, [*([0, 0] for _ in x.shape[:-2]), [0, after], [0, 0]])


def windowed_attention(
    q,
    k,
    v,
    blocked=None,
    bias=None,
    *,
    window,
    causal=False,
    dropout=None,
    query_block=128,
    most_scores=2**20,
    compiled=False,
):
    """Attention to the keys at most `window` positions away, without the other scores.

    "Attention Is All You Need", section 4 and table 1, "Self-Attention (restricted)". The queries
    are split into tiles of t, each with the t + 2 `window` keys it can reach, or t + `window` with
    `causal`. The backward pass recomputes each tile instead of storing it.

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        blocked: None, or a bool tensor that broadcasts to (..., T, S), True = blocked.
        bias: None, a float tensor of the rank of `q` that broadcasts to (..., T, S), or
            `ByDistance`.
        window: int, key s is also blocked for query t if |t - s| > window.
        causal: bool, True also blocks key s for query t if s > t.
        dropout: None, or `(rate, seed)`: weights are dropped with probability rate, the same ones
            forward and backward; seed is an integer tensor (2,).
        query_block: int, maximum t.
        most_scores: int, maximum number of scores in memory for more than one entry of the first
            axis.
        compiled: bool, whether this is compiled with XLA, which multiplies bfloat16 matrices as
            bfloat16.

    Returns:
        (..., T, H_v), in the dtype of `q`; computed in float32 (float64 for float64).

    Differs from the paper: the window is `window` keys on each side of the query, not r in all, and
    a query without a free key averages all values, as in `whole_attention`, but without dropout.
    """
    given, shape, dtype = q, (*q.shape[:-1], v.shape[-1]), q.dtype
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    if q.shape.rank == 2:  # the loops go over the first axis
        q, k, v = (tf.expand_dims(x, 0) for x in (q, k, v))
    tiles = Tiles(shape_of(q)[-2], shape_of(k)[-2], window, causal, query_block)
    all_reach_a_key = blocked is None and tiles.all_reach_a_key
    blocked = tiles.blocked(blocked, q.shape.rank)  # (..., M, t, s)
    others, constants, first = _terms(bias, window, tiles, q)
    constants["blocked"] = blocked

    @tf.custom_gradient
    def attend(q, k, v, *tensors):
        named = dict(zip(others, tensors, strict=True))
        windows = Windows(tiles, q, k, v, constants, named, first, dropout, most_scores)

        def gradient(upstream):
            gradients = zip(windows.backward(upstream), (q, k, v, *tensors), strict=True)
            return [tf.cast(g, x.dtype) for g, x in gradients]

        return windows.forward(), gradient

    inputs = tiles.padded_queries(q), tiles.padded_keys(k), tiles.padded_keys(v)
    output = attend(*(as_factor(x, compiled) for x in inputs), *others.values())
    output = tiles.unpadded(output)  # (..., T, H_v)
    if not all_reach_a_key:
        average = tf.reduce_mean(tf.cast(v, wide), axis=-2, keepdims=True)  # (..., 1, H_v)
        if isinstance(bias, ByDistance):
            average += tf.cast(bias.mean_values(tiles.length, tiles.source), wide)
        alone = tf.reduce_all(blocked, -1)  # (..., M, t)
        output = tf.where(tiles.rows(alone), average, output)
    output = tf.reshape(output, tf.concat([tf.shape(given)[:-1], tf.shape(output)[-1:]], 0))
    output.set_shape(shape)
    return tf.cast(output, dtype)


def _terms(bias, window, tiles, q):
    """What a bias is for `Windows`: tensors with a gradient, tensors without one, and `first`."""
    if bias is None:
        return {}, {}, 0
    wide = tf.float64 if q.dtype == tf.float64 else tf.float32
    if not isinstance(bias, ByDistance):
        return {"term": _like(q, tiles.of_pairs(tf.cast(bias, wide), 0))}, {}, 0
    near, scores = bias.cast(wide).within(window), {}
    if near.scores is not None:
        scores["term"] = _like(q, tiles.of_distances(near.scores, near.first))
    tables = {"keys": near.keys, "values": near.values}
    tables = {name: table for name, table in tables.items() if table is not None}
    if near.has_gradient:
        return {**scores, **tables}, {}, near.first
    return tables, scores, near.first


def _like(q, term):
    """Give a term (..., M, t, s) the leading axes of `q`, the first one known to be 1 or not."""
    while term.shape.rank < q.shape.rank + 1:
        term = tf.expand_dims(term, 0)
    if term.shape[0] is None:
        term = tf.broadcast_to(term, tf.concat([tf.shape(q)[:1], tf.shape(term)[1:]], 0))
    return term
