"""Serving a function of texts of any length from a few XLA programs.

Axes: B batch, T length.
"""

import itertools
import logging

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.warm_up import warm_up, warm_up_in_background

_log = logging.getLogger("tf_transformer")
# Of the largest output: padding changes the last bits, a missing mask changes far more.
_TOLERANCE = 0.02


class BucketedFunction:
    """A function that XLA has compiled for some batch sizes and lengths; see `compile_for`."""

    def __init__(self, function, specs, rows, lengths, background=False):
        self._specs = specs
        self._rows, self._lengths = _ascending("rows", rows), _ascending("lengths", lengths)
        _check_specs(specs)
        self._plain = tf.function(function, input_signature=[specs], autograph=False)
        self._compiled = tf.function(function, jit_compile=True, autograph=False)
        outputs = self._plain.get_concrete_function().structured_outputs
        # Sizes known only when the graph runs: of axis 0 the batch, of another axis the length.
        self._unknown = [[n is None for n in x.shape] for x in tf.nest.flatten(outputs)]
        self._ready, self._has_logged = set(), False
        self._check_padding()
        buckets = itertools.product(self._rows, self._lengths)
        self._thread = warm_up_in_background(self._compile, buckets) if background else None
        if not background:
            warm_up(self._compile, buckets)

    def __call__(self, inputs):
        """Run the function."""
        try:
            tf.nest.assert_same_structure(self._specs, inputs)
        except (TypeError, ValueError):
            raise ArgumentError(
                "inputs",
                f"tensors or arrays in the structure of specs, {self._specs}",
                f"{inputs!r}",
            ) from None
        inputs = tf.nest.map_structure(
            lambda spec, x: tf.convert_to_tensor(x, spec.dtype), self._specs, inputs
        )
        shapes = {tuple(x.shape) for x in tf.nest.flatten(inputs)}
        if len(shapes) > 1 or len(next(iter(shapes))) != 2:
            raise ArgumentError("inputs", "tensors of one shape (batch, length)", sorted(shapes))
        [shape] = shapes
        bucket = _least(self._rows, shape[0]), _least(self._lengths, shape[1])
        if None in bucket and not self._has_logged:
            self._has_logged = True
            _log.warning(
                "compile_for: a batch of shape %s exceeds the largest bucket, (%d, %d); it runs as "
                "a plain graph.",
                shape,
                self._rows[-1],
                self._lengths[-1],
            )
        if bucket not in self._ready:
            return self._plain(inputs)
        return self._cut(self._compiled(_padded(inputs, bucket)), shape, bucket)

    @property
    def programs(self):
        """int, the number of programs that are ready."""
        return len(self._ready)

    def wait(self):
        """Wait for the programs that are compiled in the background."""
        if self._thread is not None:
            self._thread.join()

    def _compile(self, *bucket):
        outputs = self._compiled(_ones(self._specs, bucket))
        self._ready.add(bucket)
        return outputs

    def _check_padding(self):
        alone, bucket = (1, 1), (self._rows[-1], max(2, self._lengths[-1]))
        inputs = _ones(self._specs, alone)
        expected, padded = self._plain(inputs), self._plain(_padded(inputs, bucket))
        actual = self._cut(padded, alone, bucket)
        for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True):
            one, other = tf.cast(one, tf.float32), tf.cast(other, tf.float32)
            most = _TOLERANCE * tf.reduce_max(tf.abs(one))
            if one.shape != other.shape or tf.reduce_max(tf.abs(one - other)) > most:
                raise ArgumentError(
                    "function",
                    "one whose results do not change when its inputs are padded with zeros",
                    "other results for a padded batch",
                    'Pass the padding mask, such as "attention_mask", as one of the inputs.',
                )

    def _cut(self, outputs, shape, bucket):
        if shape == bucket:
            return outputs

        def cut(x, unknown):
            kept = [slice(shape[axis > 0] if u else None) for axis, u in enumerate(unknown)]
            return x[tuple(kept)]

        parts = [cut(*pair) for pair in zip(tf.nest.flatten(outputs), self._unknown, strict=True)]
        return tf.nest.pack_sequence_as(outputs, parts)


def compile_for(function, specs, rows, lengths, background=False):
    """Compile a function with XLA for a few shapes, and pad every call to one of them.

    XLA compiles a program per shape, in seconds, so a server must not meet new shapes. Here a
    batch is padded with zeros to the next number of rows and the next length, and the result is cut
    to its size. A small batch gains most: MiniLM takes 0.5 of the plain graph's time for one
    sentence of 16 tokens, 0.8 for 8 of 32, 1.05 for 32 of 64 (benchmarks/bert/NOTES.md). A batch
    larger than the largest bucket runs as a plain graph, and the first one is logged.

    Args:
        function: maps one nest of tensors (B, T) to a nest of tensors whose axis 0 is B, and whose
            other axes are T or fixed; for example `lambda x: model(x, training=False)`. An input
            of 0 must mean padding.
        specs: nest of `tf.TensorSpec((None, None), dtype)`, the inputs.
        rows: ascending ints, the batch sizes.
        lengths: ascending ints, the lengths.
        background: bool. False returns when all len(rows) x len(lengths) programs are compiled.
            True returns at once: the plain graph answers until the program for a batch is ready.

    Returns:
        `BucketedFunction`: call it like `function`; `programs` counts its programs, and `wait`
        waits for them.

    Raises:
        ValueError: If `rows` or `lengths` is empty or not ascending, a spec is not (None, None), or
            padding changes the results, as without a mask.
        tf.errors.InvalidArgumentError: If XLA cannot compile the function; in the background, that
            is logged.

    Example:
        >>> from tf_transformer.models.bert import BertConfig, SentenceEncoder
        >>> model = SentenceEncoder(BertConfig(11, 8, 1, 2, 16))
        >>> spec = tf.TensorSpec((None, None), tf.int32)
        >>> encode = compile_for(
        ...     lambda x: model(x, training=False),
        ...     {"input_ids": spec, "attention_mask": spec},
        ...     rows=[1],
        ...     lengths=[4, 8],
        ... )
        >>> ids = tf.constant([[2, 7, 3]])
        >>> vectors = encode({"input_ids": ids, "attention_mask": tf.ones_like(ids)})
        >>> vectors.shape.as_list(), encode.programs
        ([1, 8], 2)
    """
    return BucketedFunction(function, specs, rows, lengths, background)


def _ascending(name, sizes):
    sizes = list(sizes)
    is_int = all(isinstance(n, int) and not isinstance(n, bool) for n in sizes)
    if not is_int or not sizes or sizes[0] < 1 or sizes != sorted(set(sizes)):
        raise ArgumentError(
            name, "one or more ascending positive integers", sizes, "Each is a size to compile for."
        )
    return sizes


def _check_specs(specs):
    for spec in tf.nest.flatten(specs):
        if not isinstance(spec, tf.TensorSpec) or spec.shape.as_list() != [None, None]:
            raise ArgumentError("specs", "tf.TensorSpec((None, None), dtype)", spec)


def _least(sizes, needed):
    return next((size for size in sizes if size >= needed), None)


def _ones(specs, shape):
    return tf.nest.map_structure(lambda spec: tf.ones(shape, spec.dtype), specs)


def _padded(inputs, bucket):
    def padded(x):
        missing = [[0, most - n] for most, n in zip(bucket, x.shape, strict=True)]
        return tf.pad(x, missing)

    return tf.nest.map_structure(padded, inputs)
