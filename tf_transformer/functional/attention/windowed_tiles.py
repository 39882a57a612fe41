"""The tiles of scores along the diagonal that windowed attention computes.

Axes: T target (query) length, S source (key) length; M tiles of t queries and s keys. Leading axes
(batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import Blocks, even_size, shape_of
from tf_transformer.functional.attention.by_distance import spread


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
