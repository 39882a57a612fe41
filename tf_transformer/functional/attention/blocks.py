"""One axis cut into blocks of one size, for loops that hold a block at a time."""

import tensorflow as tf


def shape_of(x):
    """The sizes of a tensor, ints as far as they are known: XLA wants a slice's size constant.

    Args:
        x: tensor of known rank.

    Returns:
        list of ints and scalar int32 tensors.

    Example:
        >>> shape_of(tf.zeros((2, 3)))
        [2, 3]
    """
    return [tf.shape(x)[i] if size is None else size for i, size in enumerate(x.shape)]


class Blocks:
    """The blocks of an axis: all of one size, the last one moved back to end with the axis.

    The last block then begins with indices that the block before it has seen already; whoever
    adds up over blocks leaves them out. Nothing is padded, and every shape is static as soon as
    the length is.

    Args:
        length: int or scalar int32 tensor, of the axis.
        size: int or scalar int32 tensor, of a block; a shorter axis is a single block.

    Attributes:
        size: int or scalar tensor, at most `length`.
        count: int or scalar tensor, how many blocks.
        overlap: int or scalar tensor, how many indices the last two blocks share.

    Example:
        >>> blocks = Blocks(length=7, size=3)
        >>> [blocks.indices(i).numpy().tolist() for i in range(blocks.count)]
        [[0, 1, 2], [3, 4, 5], [4, 5, 6]]
        >>> blocks.seen(2).numpy().tolist()
        [True, True, False]
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
        """The blocks of an axis of a tensor."""
        static = x.shape[axis]
        return cls(tf.shape(x)[axis] if static is None else static, size)

    def start(self, i):
        """The first index of block `i`."""
        return tf.minimum(i * self.size, self.length - self.size)

    def indices(self, i):
        """int32 tensor (size,): the indices of block `i`."""
        return self.start(i) + tf.range(self.size)

    def seen(self, i):
        """bool tensor (size,): which indices of block `i` the block before has too."""
        return self.indices(i) < i * self.size

    def cut(self, x, axis, i):
        """Block `i` of an axis of `x`, or `x` where that axis is 1 and broadcasts."""
        length = x.shape[axis]
        if length == 1:
            return x
        start, size = self.start(i), self.size
        if length is None:  # 1 or all, which only the running graph can tell
            whole = tf.shape(x)[axis]
            start, size = tf.minimum(start, whole - 1), tf.minimum(size, whole)
            start = tf.where(tf.equal(whole, 1), 0, start)
        axis %= x.shape.rank
        sizes = shape_of(x)
        sizes[axis] = size
        starts = [0] * x.shape.rank
        starts[axis] = start
        block = tf.slice(x, starts, sizes)
        # Not `tf.ensure_shape`: XLA makes a dynamic shape of it.
        block.set_shape([n if isinstance(n, int) else None for n in sizes])
        return block

    def join(self, blocks, axis=0):
        """Put stacked blocks together.

        Args:
            blocks: tensor (..., count, ..., size, width).
            axis: int, where the blocks are counted.

        Returns:
            Tensor (..., length, width), one axis less.
        """
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
