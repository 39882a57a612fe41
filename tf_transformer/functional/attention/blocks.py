"""Blocks of heads and queries, and loops over them that recompute each block for the gradient.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, W any width; r
and t are the sizes of a block of heads and of queries. Leading axes (batch, heads) are "...".
"""

import tensorflow as tf


def shape_of(x):
    """Shape of a tensor, with ints for static sizes: XLA needs constant slice sizes."""
    return [tf.shape(x)[i] if size is None else size for i, size in enumerate(x.shape)]


def wide_dtype(x):
    """The dtype of scores: float64 for float64, float32 for every other dtype."""
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def smaller(x, y):
    """The minimum of two sizes, an int if both are."""
    return min(x, y) if isinstance(x, int) and isinstance(y, int) else tf.minimum(x, y)


def larger(x, y):
    """The maximum of two sizes, an int if both are."""
    return max(x, y) if isinstance(x, int) and isinstance(y, int) else tf.maximum(x, y)


class Blocks:
    """Equal-sized blocks of an axis; the last one is shifted back to end with the axis.

    The last block may therefore start with indices that the previous block also covers; sums over
    blocks must skip them. Nothing is padded, and all shapes are static if the length is.
    """

    def __init__(self, length, size):
        self.length = length
        self.size = smaller(size, length)
        self.count = larger(1, -(-length // size))
        self.overlap = self.count * self.size - length

    @classmethod
    def of(cls, x, axis, size):
        """Blocks of an axis of a tensor."""
        static = x.shape[axis]
        return cls(tf.shape(x)[axis] if static is None else static, size)

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
        axis %= x.shape.rank
        sizes = shape_of(x)
        sizes[axis] = size
        starts = [0] * x.shape.rank
        starts[axis] = start
        block = tf.slice(x, starts, sizes)
        # Not `tf.ensure_shape`, which XLA turns into a dynamic shape.
        block.set_shape([n if isinstance(n, int) else None for n in sizes])
        return block

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
    """Run `state = body(i, *state)` for i < `count`.

    Two iterations are in flight, so that the matrix products of one overlap with the elementwise
    operations of the other.
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


class Grid:
    """Blocks of heads and of queries, and the loops over them.

    Args:
        q: float tensor (..., T, H).
        keys: number of keys of a block.
        most_scores: maximum number of scores in a block of more than one query and one head.
        query_block: maximum number of queries in a block, by default as `most_scores` allows.
        one_head: bool, whether a block has one head only.
    """

    def __init__(self, q, keys, most_scores, query_block=None, one_head=False):
        self.rows, self.lead, self.dtype = q.shape[:-1], tf.shape(q)[:-2], wide_dtype(q)
        heads, length, _ = shape_of(merge_leading(q))
        most_rows = most_scores // larger(1, keys)
        query_block = even_size(length, most_rows if query_block is None else query_block)
        self.queries = Blocks(length, query_block)
        together = 1 if one_head else most_rows // query_block
        self.heads = Blocks(heads, even_size(heads, together))
        self.keys = keys

    def number(self, i, j):
        """The number of block `j` of the queries of block `i` of the heads."""
        return i * self.queries.count + j

    def loop(self, body, state, of_queries):
        """Run `state = body(i, j, of_queries(j), *state)` for all blocks."""

        def over_heads(j, *state):
            shared = of_queries(j)
            return over_blocks(self.heads.count, lambda i, *more: body(i, j, shared, *more), state)

        return over_blocks(self.queries.count, over_heads, state)

    def future(self, j, past=0):
        """bool (t, S): which keys are after each query of block `j`; query 0 is at `past`."""
        return tf.range(self.keys) > tf.expand_dims(past + self.queries.indices(j), 1)

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


class OfQueries:
    """Cuts a tensor (..., T, W) into blocks, and joins the gradients of the blocks."""

    def __init__(self, grid, x):
        self.grid, self.x = grid, merge_leading(x)  # (R, T, W)

    def cut(self, x, i, j):
        """The part of `x` for block `i` of the heads and `j` of the queries, (r, t, W)."""
        return self.grid.rows_of(x, i, j)

    def start(self):
        """The state of the gradient before the first block."""
        return self.grid.array_of_rows(self.x.shape[-1])

    def add(self, state, gradient, i, j):
        """The state with the gradient of a block."""
        return state.write(self.grid.number(i, j), gradient)

    def finish(self, state):
        """The gradient of the tensor, (R, T, W)."""
        return self.grid.join_rows(state, self.x.shape[-1])


class OfHeads:
    """Like `OfQueries`, for a tensor (..., S, W) of which every query needs all rows."""

    def __init__(self, grid, x):
        self.grid, self.x = grid, merge_leading(x)

    def cut(self, x, i, j):
        """See `OfQueries`."""
        return self.grid.heads.cut(x, 0, i)  # (r, S, W)

    def start(self):
        """See `OfQueries`."""
        return self.grid.array(self.grid.heads.count, self.grid.heads.size, *shape_of(self.x)[1:])

    def add(self, state, gradient, i, j):
        """See `OfQueries`."""
        return state.write(i, state.read(i) + gradient)

    def finish(self, state):
        """See `OfQueries`."""
        return self.grid.join_heads(state.stack(), *shape_of(self.x)[1:])


class OfAll:
    """Like `OfQueries`, for a tensor that every block needs as a whole, such as a table."""

    def __init__(self, x):
        self.x = x

    def cut(self, x, i, j):
        """See `OfQueries`."""
        return x

    def start(self):
        """See `OfQueries`."""
        return tf.zeros_like(self.x)

    def add(self, state, gradient, i, j):
        """See `OfQueries`."""
        return state + gradient

    def finish(self, state):
        """See `OfQueries`."""
        return state


class OfSomeHeads:
    """Like `OfQueries`, for a tensor (..., 1, W) whose leading axes broadcast to the heads."""

    def __init__(self, grid, x):
        self.grid, self.x, self._at = grid, merge_leading(x), places(x, grid.lead)

    def cut(self, x, i, j):
        """See `OfQueries`."""
        return tf.gather(x, self.grid.heads.cut(self._at, 0, i))  # (r, 1, W)

    def start(self):
        """See `OfQueries`."""
        return tf.zeros_like(self.x)

    def add(self, state, gradient, i, j):
        """See `OfQueries`."""
        at = tf.expand_dims(self.grid.heads.cut(self._at, 0, i), 1)
        return tf.tensor_scatter_nd_add(state, at, gradient)

    def finish(self, state):
        """See `OfQueries`."""
        return state


class OfPairs:
    """Like `OfQueries`, for a tensor (..., T, S): a mask or, if blocks have one head, a bias."""

    def __init__(self, grid, x):
        self.grid, self.x, self._at = grid, merge_leading(x), places(x, grid.lead)

    def cut(self, x, i, j):
        """See `OfQueries`."""
        return tf.gather(self.grid.queries.cut(x, 1, j), self.grid.heads.cut(self._at, 0, i))

    def start(self):
        """See `OfQueries`."""
        (heads, _, keys), queries = shape_of(self.x), self.grid.queries
        return self.grid.array(larger(1, heads) * queries.count, queries.size, keys)

    def add(self, state, gradient, i, j):
        """See `OfQueries`."""
        # Sums of one head, or of none: an empty batch has a block too.
        at = tf.reduce_sum(self.grid.heads.cut(self._at, 0, i)) * self.grid.queries.count + j
        return state.write(at, state.read(at) + tf.reduce_sum(gradient, 0))

    def finish(self, state):
        """See `OfQueries`."""
        (heads, _, keys), queries = shape_of(self.x), self.grid.queries
        blocks = state.stack()[: heads * queries.count]
        blocks = tf.reshape(blocks, (heads, queries.count, queries.size, keys))
        return queries.join(blocks, axis=1)


def recompute(attend, grid, inputs, constants=None, *, width, of_queries=lambda j: None):
    """Attention in blocks of heads and queries, each recomputed in the backward pass.

    Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".

    Args:
        attend: function of `(i, j, shared, **parts)`, the output (r, t, `width`) of block `i` of
            the heads and `j` of the queries.
        grid: `Grid`.
        inputs: dict from the name of a part to how it is cut, such as `OfHeads`.
        constants: the same for parts without a gradient.
        width: int.
        of_queries: function of `j`, what all heads of a block of queries share.

    Returns:
        (..., T, `width`), in the dtype of the grid.
    """

    def parts_of(tensors, i, j):
        pairs = zip(inputs.items(), tensors, strict=True)
        # `tf.identity`: q and k may be the same tensor.
        return {name: tf.identity(part.cut(x, i, j)) for (name, part), x in pairs}

    def output_of(i, j, shared, parts):
        fixed = {name: part.cut(part.x, i, j) for name, part in (constants or {}).items()}
        return attend(i, j, shared, **parts, **fixed)

    @tf.custom_gradient
    def run(*tensors):
        def forward(i, j, shared, outputs):
            output = output_of(i, j, shared, parts_of(tensors, i, j))
            return [outputs.write(grid.number(i, j), output)]

        def gradient(upstream):
            def backward(i, j, shared, *states):
                parts = parts_of(tensors, i, j)
                with tf.GradientTape() as tape:
                    tape.watch(parts)
                    output = output_of(i, j, shared, parts)
                new = tape.gradient(output, parts, grid.new_rows_of(upstream, i, j))
                return [
                    part.add(state, tf.cast(new[name], grid.dtype), i, j)
                    for (name, part), state in zip(inputs.items(), states, strict=True)
                ]

            states = [part.start() for part in inputs.values()]
            states = grid.loop(backward, states, of_queries)
            gradients = []
            for part, state in zip(inputs.values(), states, strict=True):
                # One at a time: joining needs memory for the blocks and a copy of them.
                with tf.control_dependencies(gradients):
                    gradients.append(tf.cast(part.finish(state), part.x.dtype))
            return gradients

        (outputs,) = grid.loop(forward, [grid.array_of_rows(width)], of_queries)
        return grid.join_rows(outputs, width), gradient

    output = run(*(part.x for part in inputs.values()))
    output = tf.reshape(output, tf.concat([grid.lead, tf.shape(output)[1:]], 0))
    output.set_shape((*grid.rows, width if isinstance(width, int) else None))
    return output


def merge_leading(x):
    """Merge all axes but the last two."""
    leading = [tf.reduce_prod(tf.shape(x)[:-2])]
    flat = tf.reshape(x, tf.concat([leading, tf.shape(x)[-2:]], 0))
    flat.set_shape((x.shape[:-2].num_elements(), *x.shape[-2:]))
    return flat


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
