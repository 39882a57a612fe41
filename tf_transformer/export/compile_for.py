"""Programs compiled before requests come: buckets of shapes, warm-up.

Axes: B batch, S length, T length.
"""

import contextlib
import itertools
import logging
import threading
import time
from pathlib import Path

import tensorflow as tf

from tf_transformer.errors import ArgumentError

_SHORTEST = 8


def in_bucket(ids, longest):
    """Pad a batch with zeros to the next bucket, so that XLA compiles few programs.

    B becomes a power of two; S becomes 8, 16, 32 and so on, at most `longest`.
    """
    rows, length = tf.unstack(tf.shape(ids))
    wanted = tf.minimum(tf.maximum(_power_of_two(length), _SHORTEST), tf.maximum(longest, length))
    return tf.pad(ids, [[0, _power_of_two(rows) - rows], [0, wanted - length]])


def lengths_of_buckets(longest):
    """The lengths that `in_bucket` pads to."""
    lengths = []
    while not lengths or lengths[-1] < longest:
        lengths.append(min(longest, _SHORTEST * 2 ** len(lengths)))
    return lengths


def _power_of_two(number):
    """The smallest power of two that is at least `number`; 0 for 0."""
    powers = 2 ** tf.range(31)
    least = tf.reduce_min(tf.where(powers >= number, powers, tf.int32.max))
    return tf.where(number > 0, least, 0)


# TensorFlow Serving looks for this file in the folder of a SavedModel.
REQUESTS = Path("assets.extra", "tf_serving_warmup_requests")
_LONGEST = 64  # a request of more tokens would delay the start


def warm_up_texts(longest):
    """Batches of texts, one text for each short bucket and all of them together."""
    # Two less: with a token at one end or at both a text is still in the bucket.
    lengths = [length for length in lengths_of_buckets(longest) if length <= _LONGEST]
    texts = [" ".join("a" * max(1, length - 2)) for length in lengths]
    return [*([text] for text in texts), texts]


def write_warm_up_requests(folder, batches):
    """Write requests to `serving_default`, a TFRecord of `tensorflow.serving.PredictionLog`."""
    file = Path(folder) / REQUESTS
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for batch in batches:
            writer.write(_prediction_log(batch))


def _prediction_log(texts):
    # By hand, as its classes are in a package of their own; all of its fields hold bytes.
    # Numbers: tensorflow_serving/apis/{prediction_log,predict,model}.proto
    tensor = tf.make_tensor_proto([text.encode("utf-8") for text in texts])
    entry = _field(1, b"text") + _field(2, tensor.SerializeToString())
    request = _field(1, _field(3, b"serving_default")) + _field(2, entry)
    return _field(6, _field(1, request))


def _field(number, content):
    """A field of a protocol buffer: its number, the length of its content, the content."""
    size, rest = [], len(content)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + content


_ROWS = (1, 2, 4, 8)
# The arguments of a function that compiles for a bucket.
SIZES = tuple(tf.TensorSpec((), tf.int32, name=name) for name in ("rows", "length"))


class SmallBatches(tf.Module):
    """A function of ids that uses XLA for the small batches that it has compiled a program for.

    `warm_up` compiles the program of a bucket: B is 1, 2, 4 or 8, and T 8, 16, 32 and so on. A
    batch that fits is padded to its bucket; all others, and all before that, take the plain
    function.

    Args:
        compiled: function that calls XLA, `(nest of integer tensors (B, T), *settings) -> nest of
            tensors (B, ...)`.
        plain: function from and to the same for batches of any size; trailing axes may differ.
        specs: nest of `tf.TensorSpec((None, None))`, the inputs.
        longest: int, the largest T of a bucket.
        at_once: bool. True compiles each bucket when the first batch falls into it.
        settings: tuple of `tf.TensorSpec(())`, further arguments.
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
        """Compile the program for the bucket of a batch.

        Args:
            rows: scalar int32 tensor, B, 1 to 8.
            length: scalar int32 tensor, T, at most `longest`.

        Returns:
            scalar int32 tensor, the number of programs that are ready.

        Raises:
            tf.errors.InvalidArgumentError: If B is above 8, T above `longest`, or one of them 0.
        """
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


def warm_up(function, calls):
    """Call a function once with each set of arguments, so that later calls are fast.

    A `tf.function` is traced, and XLA compiles, on the first call with a new kind of input; tables,
    thread pools and oneDNN kernels are initialized then too. Call this before a server reports that
    it is ready. One call of `Translator.translate` is enough for all batch sizes and lengths. XLA
    compiles a program for each bucket: pass the model's own `warm_up` and the sizes of the buckets,
    or with `jit_compile=True` one batch for each.

    Args:
        function: a callable that returns tensors: a `tf.function`, a loaded signature, a layer.
        calls: iterable of tuples, the arguments of each call.

    Returns:
        list of float, the seconds of each call.

    Example:
        >>> double = tf.function(lambda x: x + x, jit_compile=True)
        >>> len(warm_up(double, [(tf.ones((1,)),), (tf.ones((8,)),)]))
        2
    """
    seconds = []
    for arguments in calls:
        start = time.perf_counter()
        for tensor in tf.nest.flatten(function(*arguments)):
            tensor.numpy()  # wait for the result
        seconds.append(time.perf_counter() - start)
    return seconds


def warm_up_in_background(function, calls):
    """Run `warm_up` in a thread, while the process does other work.

    The thread ends early, after the call that it is in, when the main thread ends.

    Args:
        function, calls: see `warm_up`. An error of a call is logged and ends the thread.

    Returns:
        `threading.Thread`, which runs; `join` waits for it.

    Example:
        >>> double = tf.function(lambda x: x + x, jit_compile=True)
        >>> thread = warm_up_in_background(double, [(tf.ones((1,)),)])
        >>> thread.join()
    """

    def run():
        try:
            for arguments in calls:
                if not threading.main_thread().is_alive():
                    return
                warm_up(function, [arguments])
        except Exception as error:  # what serves goes on
            _log.warning("warm_up: a call failed, those after it are left out: %s", error)

    # Not a daemon: a process must not end in the middle of a compilation.
    thread = threading.Thread(target=run)
    thread.start()
    return thread


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
