"""Functions of ids that XLA compiles for buckets of shapes before requests arrive.

Axes: B batch, T length.
"""

import contextlib
import itertools
import logging
import threading

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check

_log = logging.getLogger("tf_transformer")
# The arguments of `BucketedFunction.warm_up`.
SIZES = tuple(tf.TensorSpec((), tf.int32, name=name) for name in ("rows", "length"))
SMALL_ROWS = (1, 2, 4, 8)
# Relative to the largest output: padding changes the last bits, a missing mask much more.
_TOLERANCE = 0.02


def traced(function, *specs):
    """A graph function; as a decorator, it would keep only a weak reference to a method's owner."""
    return unlocked(tf.function(function, input_signature=specs, autograph=False))


class _Unlocked:
    # TensorFlow 2.21 does not release this lock if the arguments do not fit the signature. Then
    # calls in other threads, such as those of `translate_texts`, would wait forever.
    def _call(self, *args, **kwargs):
        try:
            return super()._call(*args, **kwargs)
        except Exception:
            with contextlib.suppress(RuntimeError):  # the lock has been released
                self._lock.release()
            raise


def unlocked(function):
    """A graph function that other threads can call after one with arguments that do not fit."""
    kind = type(function)
    if not issubclass(kind, _Unlocked):
        function.__class__ = type(kind.__name__, (_Unlocked, kind), {})
    return function


def bucket_lengths(longest):
    """Return the lengths 8, 16, 32 and so on, up to `longest`."""
    lengths = []
    while not lengths or lengths[-1] < longest:
        lengths.append(min(longest, 8 * 2 ** len(lengths)))
    return lengths


class BucketedFunction(tf.Module):
    """A function of ids that XLA compiles for some batch sizes and lengths, its buckets."""

    # If the program of a batch's bucket is ready, the batch is padded with zeros and the result is
    # cut to the batch's rows. All other batches use the plain function. `compiled` is compiled by
    # XLA: it maps a nest of integer tensors (B, T), as in `specs`, and scalars, as in `settings`,
    # to a nest of tensors (B, ...). `plain` does the same; other axes of its result may differ.
    # With `at_once`, every bucket counts as ready, so its program is compiled by its first batch,
    # and batches for `plain` are padded too, B to a power of two.

    def __init__(self, compiled, plain, specs, rows, lengths, at_once=False, settings=()):
        super().__init__(name="bucketed_function")
        self._specs, self._settings, self._at_once = specs, settings, at_once
        self._rows, self._lengths = np.array(rows, np.int32), np.array(lengths, np.int32)
        # Traced once, so that `warm_up` compiles the programs that requests use.
        self._compiled = traced(compiled, specs, *settings)
        self._plain = plain
        # 0 or 1 for each bucket, not bool: a GPU cannot gather bools from a variable.
        self._new = tf.fill((len(rows), len(lengths)), tf.constant(at_once, tf.int64))
        self._ready = tf.Variable(self._new, trainable=False, name="ready")
        self.warm_up = traced(self.warm_up, *SIZES)

    def __call__(self, inputs, *settings):
        """Compute the function in a graph: nest (B, T) and scalars -> nest (B, ...)."""
        rows, length = _shape(inputs)
        padded = self.pad(inputs)
        fits = (rows <= self._rows[-1]) & (length <= self._lengths[-1])
        outputs = tf.cond(
            fits & (tf.gather_nd(self._ready, self._bucket(rows, length)) > 0),
            lambda: self._compiled(padded, *settings),
            lambda: self._plain(padded if self._at_once else inputs, *settings),
        )
        # A result without a batch axis, such as a table, stays whole.
        return tf.nest.map_structure(
            lambda x: x if x.shape[:1].is_fully_defined() else x[:rows], outputs
        )

    def warm_up(self, rows, length):
        """Compile the program for the bucket of a batch (B, T), scalar int32 tensors from 1 to the
        largest bucket; return the number of ready programs, scalar int32.
        """
        shape, most = tf.stack([rows, length]), [self._rows[-1], self._lengths[-1]]
        message = f"rows, length: expected at least 1, at most {most[0]} and {most[1]}, got"
        tf.debugging.Assert(tf.reduce_all((shape >= 1) & (shape <= most)), [message, shape])
        outputs = self._compiled(self.pad(_ones(self._specs, shape)), *_ones(self._settings, ()))
        # Uses the results, since TensorFlow would prune a call without side effects.
        size = tf.size(tf.nest.flatten(outputs)[0], tf.int64)
        ready = self._ready.scatter_nd_update([self._bucket(rows, length)], [tf.sign(size + 1)])
        return tf.math.count_nonzero(ready, dtype=tf.int32)

    @property
    def programs(self):
        """int, the number of ready programs."""
        return int(np.count_nonzero(self._ready.numpy()))

    def pad(self, inputs):
        """Pad a batch to its bucket, or B to a power of two, so that XLA compiles few programs."""
        rows, length = _shape(inputs)
        bucket = self._bucket(rows, length)
        most = tf.gather(self._rows, bucket[0]), tf.gather(self._lengths, bucket[1])
        powers = 2 ** tf.range(31)
        beyond = tf.reduce_min(tf.where(powers >= rows, powers, tf.int32.max)), length
        added = [
            [0, tf.where(size > most_size, other, most_size) - size]
            for size, most_size, other in zip((rows, length), most, beyond, strict=True)
        ]
        return tf.nest.map_structure(lambda ids: tf.pad(ids, added), inputs)

    def _bucket(self, rows, length):
        """Return the indices of the first bucket that fits the batch, or of the last bucket."""
        places = [
            tf.math.count_nonzero(size > sizes[:-1], dtype=tf.int32)
            for size, sizes in ((rows, self._rows), (length, self._lengths))
        ]
        return tf.stack(places)


def _shape(inputs):
    return tf.unstack(tf.shape(tf.nest.flatten(inputs)[0]))


def _ones(specs, shape):
    return tf.nest.map_structure(lambda spec: tf.ones(shape, spec.dtype), specs)


def signature(output, function, *specs):
    """Turn a function into a signature of a SavedModel, with a name for its output."""
    return traced(lambda *inputs: {output: function(*inputs)}, *specs)


def warm_up_texts(longest):
    """Return batches of texts: one text for each short bucket, and all of them together."""
    # Longer requests would delay the start. Two tokens are left for those at the ends.
    lengths = [length for length in bucket_lengths(longest) if length <= 64]
    texts = [" ".join("a" * max(1, length - 2)) for length in lengths]
    return [*([text] for text in texts), texts]


@contextlib.contextmanager
def as_new(module):
    """Mark all programs of a module as not ready, as in a process that loads it."""
    parts = [part for part in module.submodules if isinstance(part, BucketedFunction)]
    ready = [part._ready.numpy() for part in parts]
    for part in parts:
        part._ready.assign(part._new)
    try:
        yield
    finally:
        for part, value in zip(parts, ready, strict=True):
            part._ready.assign(value)


def warm_up_in_background(warm_up, sizes):
    """Compile programs in a thread, which ends after its current call if the main thread ends.

    Args:
        warm_up: the `warm_up` of a model, or another function to call.
        sizes: iterable of tuples, the arguments of each call: `(rows, length)`.

    Returns:
        The running `threading.Thread`; `join` waits for it. An error is logged and ends it.

    Example:
        >>> double = tf.function(lambda x: x + x, jit_compile=True)
        >>> thread = warm_up_in_background(double, [(tf.ones((1,)),)])
        >>> thread.join()
    """

    def run():
        try:
            for arguments in sizes:
                if not threading.main_thread().is_alive():
                    return
                for tensor in tf.nest.flatten(warm_up(*arguments)):
                    tensor.numpy()  # wait for the result
        except Exception as error:  # the plain graph still serves
            _log.warning("warm_up: a call failed, those after it are left out: %s", error)

    # Not a daemon: a process must not end in the middle of a compilation.
    thread = threading.Thread(target=run)
    thread.start()
    return thread


class CompiledFunction:
    """A function that XLA has compiled for some batch sizes and lengths; see `compile_for`."""

    def __init__(self, function, specs, rows, lengths, background):
        self._specs, self._largest = specs, (rows[-1], lengths[-1])
        plain = traced(function, specs)
        compiled = tf.function(function, jit_compile=True, autograph=False)
        outputs = plain.get_concrete_function().structured_outputs
        # Unknown sizes are the batch size on axis 0, and the length on other axes.
        self._shapes = [x.shape for x in tf.nest.flatten(outputs)]
        _check_padding(plain, self._cut, specs, *self._largest)
        self._bucketed = BucketedFunction(compiled, plain, specs, rows, lengths)
        run = traced(lambda inputs: self._cut(self._bucketed(inputs), *_shape(inputs)), specs)
        self._run = run.get_concrete_function()
        self._has_logged, self._thread = False, None
        buckets = itertools.product(rows, lengths)
        if background:
            self._thread = warm_up_in_background(self._bucketed.warm_up, buckets)
            return
        for bucket in buckets:
            self._bucketed.warm_up(*bucket)

    def __call__(self, inputs):
        """Run the function."""
        try:
            tf.nest.assert_same_structure(self._specs, inputs)
        except (TypeError, ValueError):
            expected = f"tensors or arrays in the structure of specs, {self._specs}"
            raise ArgumentError("inputs", expected, f"{inputs!r}") from None
        inputs = tf.nest.map_structure(
            lambda spec, x: tf.convert_to_tensor(x, spec.dtype), self._specs, inputs
        )
        shape, *others = sorted({tuple(x.shape) for x in tf.nest.flatten(inputs)})
        is_one = len(shape) == 2 and not others
        check(is_one, "inputs", "tensors of one shape (batch, length)", [shape, *others])
        if not self._has_logged and any(np.greater(shape, self._largest)):
            self._has_logged = True
            excess = f"{shape} exceeds the largest bucket, {self._largest}"
            _log.warning(f"compile_for: a batch of shape {excess}; it runs as a plain graph.")
        return self._run(inputs)

    @property
    def programs(self):
        """int, the number of ready programs."""
        return self._bucketed.programs

    def wait(self):
        """Wait until all programs are compiled."""
        if self._thread is not None:
            self._thread.join()

    def _cut(self, outputs, rows, length):
        """Remove the padding from all axes."""

        def cut(x, shape):
            ends = [n or (length if axis else rows) for axis, n in enumerate(shape)]
            return x[tuple(slice(end) for end in ends)]

        parts = [cut(*pair) for pair in zip(tf.nest.flatten(outputs), self._shapes, strict=True)]
        return tf.nest.pack_sequence_as(outputs, parts)


def _check_padding(function, cut, specs, rows, length):
    """Refuse a function whose results change when its inputs are padded."""
    alone = _ones(specs, (1, 1))
    added = [[0, rows - 1], [0, max(1, length - 1)]]
    padded = tf.nest.map_structure(lambda x: tf.pad(x, added), alone)
    expected, actual = (tf.nest.flatten(x) for x in (function(alone), cut(function(padded), 1, 1)))
    for one, other in zip(expected, actual, strict=True):
        one, other = tf.cast(one, tf.float32), tf.cast(other, tf.float32)
        most = _TOLERANCE * tf.reduce_max(tf.abs(one))
        if one.shape != other.shape or tf.reduce_max(tf.abs(one - other)) > most:
            expected = "one whose results do not change when its inputs are padded with zeros"
            remedy = 'Pass the padding mask, such as "attention_mask", as one of the inputs.'
            raise ArgumentError("function", expected, "other results for a padded batch", remedy)


def compile_for(function, specs, rows, lengths, background=False):
    """Compile a function with XLA for a few shapes, and pad every call to one of them.

    A batch is padded with zeros to the next number of rows and the next length, and the result is
    cut to its size. Small batches gain most (benchmarks/bert/NOTES.md). A batch larger than the
    largest bucket runs as a plain graph, and the first one is logged.

    Args:
        function: maps one nest of tensors (B, T) to a nest of tensors whose axis 0 is B, and whose
            other axes are T or fixed; for example `lambda x: model(x, training=False)`. An input
            of 0 must mean padding.
        specs: nest of `tf.TensorSpec((None, None), dtype)`, the inputs.
        rows, lengths: ascending ints, the batch sizes and the lengths.
        background: bool; True returns at once, before the programs are compiled, and uses the plain
            graph until the program for a batch is ready.

    Returns:
        `CompiledFunction`: call it like `function`; `programs` counts its programs, and `wait`
        waits for them.

    Raises:
        ValueError: If `rows` or `lengths` is empty or not ascending, a spec is not (None, None), or
            padding changes the results, as without a mask.
        tf.errors.InvalidArgumentError: If XLA cannot compile it; only logged in the background.

    Example:
        >>> spec = tf.TensorSpec((None, None), tf.int32)
        >>> doubled = compile_for(lambda ids: 2 * ids, spec, rows=[1], lengths=[4, 8])
        >>> doubled(tf.constant([[2, 7, 3]])).shape.as_list(), doubled.programs
        ([1, 3], 2)
    """
    sizes = {"rows": list(rows), "lengths": list(lengths)}
    for name, given in sizes.items():
        is_int = all(isinstance(n, int) and not isinstance(n, bool) for n in given)
        if not is_int or not given or given[0] < 1 or given != sorted(set(given)):
            remedy = "Each is a size to compile for."
            raise ArgumentError(name, "one or more ascending positive integers", given, remedy)
    for spec in tf.nest.flatten(specs):
        if not isinstance(spec, tf.TensorSpec) or spec.shape.as_list() != [None, None]:
            raise ArgumentError("specs", "tf.TensorSpec((None, None), dtype)", spec)
    return CompiledFunction(function, specs, **sizes, background=background)
