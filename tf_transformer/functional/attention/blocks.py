"""Equal-sized blocks of an axis, for loops that hold one block at a time, and merged leading axes.

Axes: R heads of the whole batch, T target (query) length, S source (key) length.
"""

import tensorflow as tf


def shape_of(x):
    """Shape of a tensor, with ints for static sizes: XLA needs constant slice sizes."""
    return [tf.shape(x)[i] if size is None else size for i, size in enumerate(x.shape)]


class Blocks:
    """Equal-sized blocks of an axis; the last one is shifted back to end with the axis.

    The last block may therefore start with indices that the previous block also covers; sums over
    blocks must skip them. Nothing is padded, and all shapes are static if the length is.
    """

    def __init__(self, length, size):
        self.length = length
        if isinstance(length, int) and isinstance(size, int):
            self.size = min(size, length)
            self.count = max(1, -(-length // size))
        else:
            self.size = tf.minimum(size, length)
            self.count = tf.maximum(1, -(-length // size))
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
            start, size = tf.minimum(start, whole - 1), tf.minimum(size, whole)
            start = tf.where(tf.equal(whole, 1), 0, start)
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


def join_grid(blocks, heads, rows, width):
    """Join blocks of two axes, as a loop over both stacks them."""
    shape = heads.count, rows.count, heads.size, rows.size, width
    joined = rows.join(tf.reshape(blocks, shape), axis=1)
    return join_heads(joined, heads, rows.length, width)


def join_heads(blocks, heads, length, width):
    """Join blocks of heads."""
    blocks = tf.reshape(blocks, (heads.count, heads.size, length * width))
    return tf.reshape(heads.join(blocks), (heads.length, length, width))


def even_size(length, most):
    """Block size for the fewest blocks of at most `most`, all about equally large."""
    larger = max if isinstance(length, int) and isinstance(most, int) else tf.maximum
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


def zeros_array(dtype, count, *shape):
    """A TensorArray of zeros, for sums over blocks."""
    static = [size if isinstance(size, int) else None for size in shape]
    array = tf.TensorArray(dtype, count, element_shape=static, clear_after_read=False)
    # Unwritten elements read as zeros if their shape is static.
    return array.unstack(tf.zeros((count, *shape), dtype)) if None in static else array


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
