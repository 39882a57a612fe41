"""Small batches by XLA, in a graph that answers at once while nothing is compiled yet.

Axes: B batch, T length.
"""

import contextlib

import tensorflow as tf

from tf_transformer.export.buckets import in_bucket, lengths_of_buckets

_ROWS = (1, 2, 4, 8)
# The arguments of a function that compiles for a bucket.
SIZES = tuple(tf.TensorSpec((), tf.int32, name=name) for name in ("rows", "length"))


class SmallBatches(tf.Module):
    """A function of ids that uses XLA for the small batches that it has compiled a program for.

    `warm_up` compiles the program of a bucket: B is 1, 2, 4 or 8, and T 8, 16, 32 and so on. A
    batch that fits is padded to its bucket; all others, and all before that, take the plain
    function.
    """

    def __init__(self, compiled, plain, specs, longest, at_once=False, settings=()):
        super().__init__(name="small_batches")
        self._specs, self._settings = specs, settings
        # Traced once, so that `warm_up` compiles the programs that serve.
        signature = [specs, *settings]
        self._compiled = tf.function(compiled, input_signature=signature, autograph=False)
        self._plain, self._longest = plain, longest
        shape = len(_ROWS), len(lengths_of_buckets(longest))
        # 0 or 1 for each bucket, not bool: a GPU cannot read a bool from a variable by its place.
        self._new = tf.fill(shape, tf.constant(at_once, tf.int64))
        self._ready = tf.Variable(self._new, trainable=False, name="ready")
        # Not a decorator, which would keep only a weak reference to the object.
        self.warm_up = tf.function(self.warm_up, input_signature=SIZES, autograph=False)

    def __call__(self, inputs, *settings):
        """Compute the function in a graph: nest (B, T) and scalars -> nest (B, ...)."""
        padded = self._padded(inputs)
        rows, length = tf.unstack(tf.shape(tf.nest.flatten(inputs)[0]))
        is_small = (rows > 0) & (rows <= _ROWS[-1]) & (length > 0) & (length <= self._longest)
        return tf.cond(
            is_small & (tf.gather_nd(self._ready, self._bucket(padded)) > 0),
            lambda: tf.nest.map_structure(lambda x: x[:rows], self._compiled(padded, *settings)),
            lambda: self._plain(inputs, *settings),
        )

    def warm_up(self, rows, length):
        """Compile the program for the bucket of a batch."""
        shape = tf.stack([rows, length])
        tf.debugging.Assert(
            tf.reduce_all((shape >= 1) & (shape <= [_ROWS[-1], self._longest])),
            [
                f"rows, length: expected at least 1, at most {_ROWS[-1]} and {self._longest}, got",
                shape,
            ],
        )
        ones = tf.nest.map_structure(lambda spec: tf.ones(shape, spec.dtype), self._specs)
        padded = self._padded(ones)
        # Of its results, or TensorFlow would leave a call without side effects out.
        settings = [tf.ones((), spec.dtype) for spec in self._settings]
        size = tf.size(tf.nest.flatten(self._compiled(padded, *settings))[0], tf.int64)
        ready = self._ready.scatter_nd_update([self._bucket(padded)], [tf.sign(size + 1)])
        return tf.math.count_nonzero(ready, dtype=tf.int32)

    def _padded(self, inputs):
        return tf.nest.map_structure(lambda ids: in_bucket(ids, self._longest), inputs)

    def _bucket(self, padded):
        rows, length = tf.unstack(tf.shape(tf.nest.flatten(padded)[0]))
        return tf.stack([_place(rows, _ROWS), _place(length, lengths_of_buckets(self._longest))])


def _place(size, sizes):
    return tf.math.count_nonzero(size > tf.constant(sizes[:-1], tf.int32), dtype=tf.int32)


def warm_up_signature(warm_up):
    """Turn a function that compiles for a bucket into a signature of a SavedModel."""
    return tf.function(
        lambda rows, length: {"programs": warm_up(rows, length)}, input_signature=SIZES
    )


@contextlib.contextmanager
def as_new(module):
    """Within this context no program of a module is ready, as in a process that loads it."""
    parts = [part for part in module.submodules if isinstance(part, SmallBatches)]
    ready = [part._ready.numpy() for part in parts]
    for part in parts:
        part._ready.assign(part._new)
    try:
        yield
    finally:
        for part, value in zip(parts, ready, strict=True):
            part._ready.assign(value)
