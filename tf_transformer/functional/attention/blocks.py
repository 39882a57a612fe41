"""Blocks of heads and queries, and loops over them that recompute each block for the gradient.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, W any width; r
and t are the sizes of a block of heads and of queries. Leading axes (batch, heads) are "...".
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tf_transformer.functional.tensors import merge_leading, shape_of, sliced, wide_dtype


def smaller(x, y):
    """The minimum of two sizes, an int if both are."""
    return min(x, y) if isinstance(x, int) and isinstance(y, int) else tf.minimum(x, y)


def larger(x, y):
    """The maximum of two sizes, an int if both are."""
    return max(x, y) if isinstance(x, int) and isinstance(y, int) else tf.maximum(x, y)


class Blocks:
    """Equal-sized blocks of an axis; the last one is shifted back to end with the axis."""

    # The last block may therefore start with indices that the previous block also covers; sums over
    # blocks must skip them. Nothing is padded, and all shapes are static if the length is.

    def __init__(self, length, size):
        self.length = length
        self.size = smaller(size, length)
        self.count = larger(1, -(-length // size))
        self.overlap = self.count * self.size - length

    def start(self, i):
        """The first index of block `i`."""
        return tf.minimum(i * self.size, self.length - self.size)

    def indices(self, i):
        """int32 tensor (size,): the indices of block `i`."""
        return self.start(i) + tf.range(self.size)

    def seen(self, i):
        """bool tensor (size,): which indices of block `i` the previous block also has."""
        return self.indices(i) < i * self.size

    def cut(self, x, axis, i):
        """Slice block `i` of an axis of `x`; return `x` if that axis is 1 and broadcasts."""
        length = x.shape[axis]
        if length == 1:
            return x
        start, size = self.start(i), self.size
        if length is None:  # 1 or the full length, only known at run time
            whole = tf.shape(x)[axis]
            start, size = tf.where(whole > 1, start, 0), tf.minimum(size, whole)
        return sliced(x, axis, start, size)

    def join(self, blocks, axis=0):
        """Join stacked blocks into one axis."""
        rank = blocks.shape.rank
        others = [i for i in range(rank - 2) if i != axis]
        joined = tf.transpose(blocks, [*others, axis, rank - 2, rank - 1])
        shape = tf.shape(joined)  # (..., count, size, width)
        shape = tf.concat([shape[:-3], [shape[-3] * shape[-2]], shape[-1:]], 0)
        joined = tf.reshape(joined, shape)  # (..., count * size, width)
        if isinstance(self.overlap, int) and self.overlap == 0:
            return joined
        new = (self.count - 1) * self.size
        return tf.concat([joined[..., :new, :], joined[..., new + self.overlap :, :]], axis=-2)


def even_size(length, most):
    """Block size for the fewest blocks of at most `most`, all about equally large."""
    count = larger(1, -(-length // larger(1, most)))
    return larger(1, -(-length // count))


def over_blocks(count, body, state):
    """Run `state = body(i, *state)` for i < `count`."""
    if isinstance(count, int) and count == 1:
        return body(0, *state)
    # Two iterations are in flight, so that the matrix products of one overlap with the elementwise
    # operations of the other.
    _, *state = tf.while_loop(
        lambda i, *_: i < count,
        lambda i, *state: (i + 1, *body(i, *state)),
        (tf.constant(0), *state),
        parallel_iterations=2,
    )
    return state


class Grid:
    """Blocks of heads and of queries (..., T, H) with `num_keys` keys, and the loops over them."""

    def __init__(self, q, num_keys, most_scores, query_block=None, one_head=False):
        self.rows, self.lead, self.dtype = q.shape[:-1], tf.shape(q)[:-2], wide_dtype(q)
        heads, length, _ = shape_of(merge_leading(q))
        # A block of more than one query and one head has at most `most_scores` scores.
        most_rows = most_scores // larger(1, num_keys)
        query_block = even_size(length, most_rows if query_block is None else query_block)
        self.queries = Blocks(length, query_block)
        together = 1 if one_head else most_rows // query_block
        self.heads = Blocks(heads, even_size(heads, together))
        self.num_keys = num_keys

    def number(self, i, j):
        """The number of block `j` of the queries of block `i` of the heads."""
        return i * self.queries.count + j

    def loop(self, body, state, per_queries):
        """Run `state = body(i, j, per_queries(j), *state)` for all blocks."""

        def over_heads(j, *state):
            once = per_queries(j)  # for all heads
            return over_blocks(self.heads.count, lambda i, *more: body(i, j, once, *more), state)

        return over_blocks(self.queries.count, over_heads, state)

    def future(self, j, past=0):
        """bool (t, S): which keys are after each query of block `j`; query 0 is at `past`."""
        return tf.range(self.num_keys) > tf.expand_dims(past + self.queries.indices(j), 1)

    def rows_of(self, x, i, j):
        """Rows for the queries of a block, (R, T, W) -> (r, t, W)."""
        return self.queries.cut(self.heads.cut(x, 0, i), 1, j)

    def new_rows_of(self, x, i, j):
        """`rows_of` with zeros for rows that an earlier block also has."""
        x = self.rows_of(x, i, j)
        for blocks, at, shape in ((self.queries, j, (-1, 1)), (self.heads, i, (-1, 1, 1))):
            if not isinstance(blocks.overlap, int) or blocks.overlap:
                x = tf.where(tf.reshape(blocks.seen(at), shape), tf.zeros((), x.dtype), x)
        return x

    def array(self, count, *shape):
        """A TensorArray of zeros, for sums over blocks."""
        static = [size if isinstance(size, int) else None for size in shape]
        array = tf.TensorArray(self.dtype, count, element_shape=static, clear_after_read=False)
        # Unwritten elements read as zeros if their shape is static.
        return array.unstack(tf.zeros((count, *shape), self.dtype)) if None in static else array

    def array_of_rows(self, width):
        """A TensorArray for blocks from `rows_of`."""
        count = self.heads.count * self.queries.count
        return self.array(count, self.heads.size, self.queries.size, width)

    def join_rows(self, array, width):
        """Join the blocks of an `array_of_rows`, (R, T, W)."""
        heads, queries = self.heads, self.queries
        shape = heads.count, queries.count, heads.size, queries.size, width
        joined = queries.join(tf.reshape(array.stack(), shape), axis=1)
        return self.join_heads(joined, queries.length, width)

    def join_heads(self, blocks, length, width):
        """Join blocks of heads, (R / r, r, length, W) -> (R, length, W)."""
        blocks = tf.reshape(blocks, (self.heads.count, self.heads.size, length * width))
        return tf.reshape(self.heads.join(blocks), (self.heads.length, length, width))


class Part(NamedTuple):
    """How a tensor is cut into blocks, and how their gradients become its gradient."""

    x: tf.Tensor
    cut: Callable  # (x, i, j): the part for block i of the heads and j of the queries
    start: Callable  # (): the state of the gradient before the first block
    add: Callable  # (state, gradient, i, j): the state with the gradient of a block
    finish: Callable  # (state): the gradient of x


def of_queries(grid, x):
    """A tensor (..., T, W), cut into (r, t, W)."""
    x = merge_leading(x)  # (R, T, W)
    return Part(
        x,
        cut=grid.rows_of,
        start=lambda: grid.array_of_rows(x.shape[-1]),
        add=lambda state, gradient, i, j: state.write(grid.number(i, j), gradient),
        finish=lambda state: grid.join_rows(state, x.shape[-1]),
    )


def of_heads(grid, x):
    """A tensor (..., S, W) of which every query needs all rows, cut into (r, S, W)."""
    x, heads = merge_leading(x), grid.heads
    return Part(
        x,
        cut=lambda x, i, j: heads.cut(x, 0, i),
        start=lambda: grid.array(heads.count, heads.size, *shape_of(x)[1:]),
        add=lambda state, gradient, i, j: state.write(i, state.read(i) + gradient),
        finish=lambda state: grid.join_heads(state.stack(), *shape_of(x)[1:]),
    )


def of_all(grid, x):
    """A tensor that every block needs as a whole, such as a table."""
    return Part(
        x,
        cut=lambda x, i, j: x,
        start=lambda: tf.zeros_like(x),
        add=lambda state, gradient, i, j: state + gradient,
        finish=lambda state: state,
    )


def of_some_heads(grid, x):
    """A tensor (..., 1, W) whose leading axes broadcast to the heads, cut into (r, 1, W)."""
    at, x = places(x, grid.lead), merge_leading(x)

    def add(state, gradient, i, j):
        rows = tf.expand_dims(grid.heads.cut(at, 0, i), 1)
        return tf.tensor_scatter_nd_add(state, rows, gradient)

    return of_all(grid, x)._replace(
        cut=lambda x, i, j: tf.gather(x, grid.heads.cut(at, 0, i)), add=add
    )


def of_pairs(grid, x):
    """A tensor (..., T, S), cut into (r, t, S): a mask or, if blocks have one head, a bias."""
    at, x, queries = places(x, grid.lead), merge_leading(x), grid.queries

    def cut(x, i, j):
        return tf.gather(queries.cut(x, 1, j), grid.heads.cut(at, 0, i))

    def start():
        heads, _, keys = shape_of(x)
        return grid.array(larger(1, heads) * queries.count, queries.size, keys)

    def add(state, gradient, i, j):
        # Sums of one head, or of none: an empty batch has a block too.
        row = tf.reduce_sum(grid.heads.cut(at, 0, i)) * queries.count + j
        return state.write(row, state.read(row) + tf.reduce_sum(gradient, 0))

    def finish(state):
        heads, _, keys = shape_of(x)
        blocks = state.stack()[: heads * queries.count]
        blocks = tf.reshape(blocks, (heads, queries.count, queries.size, keys))
        return queries.join(blocks, axis=1)

    return Part(x, cut, start, add, finish)


def recompute(attend, grid, inputs, constants=None, *, width, per_queries=lambda j: None):
    """Attention (..., T, `width`) in blocks of heads and queries, recomputed backward."""
    # `attend(i, j, once, **parts)` is the output (r, t, `width`) of block `i` of the heads and `j`
    # of the queries; `once = per_queries(j)` is computed for all heads. `inputs` and, without a
    # gradient, `constants` have a `Part` for each name.

    def parts_of(tensors, i, j):
        pairs = zip(inputs.items(), tensors, strict=True)
        # `tf.identity`: q and k may be the same tensor.
        return {name: tf.identity(part.cut(x, i, j)) for (name, part), x in pairs}

    def output_of(i, j, once, parts):
        fixed = {name: part.cut(part.x, i, j) for name, part in (constants or {}).items()}
        return attend(i, j, once, **parts, **fixed)

    @tf.custom_gradient
    def run(*tensors):
        def forward(i, j, once, outputs):
            output = output_of(i, j, once, parts_of(tensors, i, j))
            return [outputs.write(grid.number(i, j), output)]

        def gradient(upstream):
            def backward(i, j, once, *states):
                parts = parts_of(tensors, i, j)
                with tf.GradientTape() as tape:
                    tape.watch(parts)
                    output = output_of(i, j, once, parts)
                new = tape.gradient(output, parts, grid.new_rows_of(upstream, i, j))
                return [
                    part.add(state, tf.cast(new[name], grid.dtype), i, j)
                    for (name, part), state in zip(inputs.items(), states, strict=True)
                ]

            states = [part.start() for part in inputs.values()]
            states = grid.loop(backward, states, per_queries)
            gradients = []
            for part, state in zip(inputs.values(), states, strict=True):
                # One at a time: joining needs memory for the blocks and a copy of them.
                with tf.control_dependencies(gradients):
                    gradients.append(tf.cast(part.finish(state), part.x.dtype))
            return gradients

        (outputs,) = grid.loop(forward, [grid.array_of_rows(width)], per_queries)
        return grid.join_rows(outputs, width), gradient

    output = run(*(part.x for part in inputs.values()))
    output = tf.reshape(output, tf.concat([grid.lead, tf.shape(output)[1:]], 0))
    output.set_shape((*grid.rows, width if isinstance(width, int) else None))
    return output


def places(x, lead):
    """Find the row of `merge_leading(x)` that each head uses."""
    missing = tf.fill((tf.size(lead) - tf.rank(x) + 2,), 1)
    own = tf.concat([missing, tf.shape(x)[:-2]], 0)
    numbers = tf.reshape(tf.range(tf.reduce_prod(own)), own)
    return tf.reshape(tf.broadcast_to(numbers, lead), (-1,))


def sum_to(x, like):
    """Sum over the leading axes along which another tensor was broadcast."""
    missing = x.shape.rank - like.shape.rank
    x = tf.reduce_sum(x, list(range(missing)))
    sizes = {"s0": tf.shape(like)[:-2], "s1": tf.shape(x)[:-2]}
    return tf.reduce_sum(x, tf.raw_ops.BroadcastGradientArgs(**sizes).r0, keepdims=True)
