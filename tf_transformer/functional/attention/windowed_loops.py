"""The two loops of windowed attention, over the first axis and over the tiles.

Axes: B the first axis, M tiles of t queries and s keys, H head width; b entries of the first axis
are computed at a time. The axes between (heads) are "...".
"""

import math

import tensorflow as tf

from tf_transformer.functional.attention.blocks import Blocks, even_size, over_blocks, shape_of
from tf_transformer.functional.attention.by_distance import collect, spread
from tf_transformer.functional.attention.product import product
from tf_transformer.functional.attention.whole import attention_scores
from tf_transformer.functional.dropout import dropout_factors, fold_in


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
