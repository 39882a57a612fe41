"""Tensors: checks of ids and other inputs; their shapes and dtypes; the program that computes them.

Axes: B batch, T length, V vocabulary.
"""

import contextlib
import contextvars
from numbers import Integral, Real

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.util._pywrap_util_port import IsMklEnabled

from tf_transformer.errors import ArgumentError, check, is_number

# Below these, floats represent every whole number exactly.
_EXACT_BELOW = {tf.float32: 2.0**24, tf.float64: 2.0**53}


def as_ids(ids, name="ids", pad_id=0):
    """Integers, whole floats, lists or a ragged tensor, padded, as int32 or int64 (B, T)."""
    # Keras makes ids float32 if an input has no dtype. 16-bit floats are refused: float16 cannot
    # distinguish 2048 from 2049, nor bfloat16 256 from 257.
    is_done = isinstance(ids, tf.Tensor) and ids.dtype in (tf.int32, tf.int64)
    ids = ids if is_done else dense(ids, name, pad_id)
    if not isinstance(ids, keras.KerasTensor) and ids.shape.rank not in (2, None):
        remedy = f"For a single text, pass {name}[tf.newaxis]."
        raise ArgumentError(name, "integers (batch, length)", f"shape {ids.shape}", remedy)
    if is_done:
        return ids
    dtype = tf.as_dtype(ids.dtype)
    if not dtype.is_integer and dtype not in _EXACT_BELOW:
        remedy = (
            'Pass integers, and give Keras inputs a dtype: keras.Input((None,), dtype="int32").'
        )
        raise ArgumentError(name, "integers", dtype.name, remedy)
    if isinstance(ids, keras.KerasTensor):
        return ids
    whole = _whole(ids, dtype, name)
    mask = getattr(ids, "_keras_mask", None)  # no `:=`, which AutoGraph cannot read
    if mask is not None:
        whole._keras_mask = mask
    return whole


def _whole(ids, dtype, name):
    """Integers or whole floats as int32 or int64; in an XLA program other floats become -1."""
    if dtype.is_integer:
        is_small = dtype.max <= tf.int32.max
        return ids if dtype == tf.int64 else tf.cast(ids, tf.int32 if is_small else tf.int64)
    whole = tf.equal(ids, tf.floor(ids)) & (tf.abs(ids) < _EXACT_BELOW[dtype])
    expected = f"whole numbers below {_EXACT_BELOW[dtype]:.0f}"
    error = (name, expected, f"other {dtype.name} numbers", "Pass integers.")
    whole = asserted(whole, tf.reduce_all(whole), *error)
    return tf.where(whole, tf.cast(ids, tf.int64), -1)


def are_tokens(ids, pad_id):
    """Distinguish tokens from padding, bool (B, T); without a `pad_id`, all are tokens."""
    return tf.ones_like(ids, tf.bool) if pad_id is None else tf.not_equal(ids, pad_id)


def dense(x, name, pad_id=0):
    """Convert a tensor, array or nested list to a dense tensor; pad a ragged one."""
    if isinstance(x, keras.KerasTensor):
        return x
    if isinstance(x, tf.RaggedTensor):
        if pad_id is None:
            remedy = "Pass texts of one length, or set the model's pad_id."
            raise ArgumentError(name, "a dense tensor", "a ragged one, without a pad_id", remedy)
        return x.to_tensor(pad_id)
    if isinstance(x, tf.SparseTensor):
        remedy = f"Pass tf.sparse.to_dense({name})."
        raise ArgumentError(name, "a dense or ragged tensor", "a sparse one", remedy)
    try:
        return tf.convert_to_tensor(x)
    except (ValueError, TypeError) as error:
        got = f"{type(x).__name__} that is not a tensor ({error})"
        remedy = f"For rows of different lengths pass tf.ragged.constant({name})."
        raise ArgumentError(name, "integers (batch, length)", got, remedy) from None


def in_vocabulary(ids, size, name="ids", size_name="vocab_size"):
    """Refuse ids outside of a table; XLA programs cannot fail and need `nan_outside` too."""
    expected = f"ids in [0, {size}) ({size_name})"
    remedy = "Do they come from the model's vocabulary?"
    if tf.executing_eagerly():
        numbers = ids.numpy()
        if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
            bad = numbers[(numbers < 0) | (numbers >= size)][0]
            raise ArgumentError(name, expected, bad, remedy)
        return ids
    least, most = tf.reduce_min(ids), tf.reduce_max(ids)
    error = (name, expected, "others", f"{remedy} The smallest and the largest:")
    return asserted(ids, (least >= 0) & (most < size), *error, least, most)


def nan_outside(ids, size, dtype):
    """In XLA, NaN for ids outside of a table, to add to embeddings or their factor; otherwise 0."""
    if not in_xla_program():
        return 0.0
    outside = (ids < 0) | (ids >= size)
    return tf.expand_dims(tf.where(outside, tf.cast(np.nan, dtype), tf.zeros((), dtype)), -1)


def asserted(x, holds, argument, expected, got, remedy=None, *values):
    """Return a tensor after an assertion, which is left out in XLA programs."""
    if tf.executing_eagerly():
        check(holds, argument, expected, got, remedy)
        return x
    if in_xla_program():
        return x
    # Not `tf.debugging.assert_*`, which add conditionals for int64.
    message = str(ArgumentError(argument, expected, got, remedy))
    assertion = tf.raw_ops.Assert(condition=holds, data=[message, *values])
    with tf.control_dependencies([assertion]):
        return tf.identity(x)


def check_range(name, value, least, most=None, *, above=False):
    """Check a setting: a number immediately, a tensor when the graph runs."""
    if value is None:
        return
    expected = f"{'more than' if above else 'at least'} {least:g}"
    if most is not None:
        expected = f"{least:g} to {most:g}" if not above else f"{expected}, at most {most:g}"
    is_tensor = tf.is_tensor(value)
    kind, words = (Integral, "a whole number") if isinstance(least, int) else (Real, "a number")
    if not is_tensor and (isinstance(value, bool) or not isinstance(value, kind)):
        raise ArgumentError(name, words, f"{value!r}")
    inside = value > least if above else value >= least  # NaN is outside too
    if most is not None:
        inside &= value <= most
    if not is_tensor:
        check(inside and is_number(value), name, expected, value)
        return
    if value.dtype.is_floating:
        inside &= tf.math.is_finite(value)
    tf.debugging.Assert(tf.reduce_all(inside), [f"{name}: expected {expected}, got", value])


def in_xla_program():
    """Whether the caller is being traced for XLA, inside `tf.function(jit_compile=True)`."""
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def wide_dtype(x):
    """The dtype of scores, statistics and angles: float64 for float64, else float32."""
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def shape_of(x):
    """Shape of a tensor, with ints for static sizes: XLA needs constant slice sizes."""
    return [tf.shape(x)[i] if size is None else size for i, size in enumerate(x.shape)]


def over_rows(function, x):
    """Apply a function of matrices, (M, D) -> (M, F), to all rows of a tensor, (..., D)."""
    if len(x.shape) == 2:
        return function(x)
    rows = function(tf.reshape(x, (-1, x.shape[-1])))  # one product, not one for each example
    outputs = tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [rows.shape[-1]]], 0))
    outputs.set_shape((*x.shape[:-1], rows.shape[-1]))
    return outputs  # (..., F)


_FEW_ROWS = 256


def times_transposed(rows, table):
    """Multiply rows (M, D) by a transposed table (V, D), such as embeddings: (M, V)."""
    # For few rows, Eigen is up to 7 times as fast with the table on the left, and oneDNN up to 1.6
    # times with a batch of one product, for which it has another kernel. What computes elsewhere
    # (XLA, a GPU, LiteRT) is not.
    is_large = (table.shape.num_elements() or 0) > 2**23
    fewest = (4 if is_large else 8) if IsMklEnabled() else 2

    def few():
        if IsMklEnabled():
            return tf.squeeze(tf.matmul(rows[None], table[None], transpose_b=True), 0)
        return tf.transpose(tf.matmul(table, rows, transpose_b=True))

    def many():
        return tf.matmul(rows, table, transpose_b=True)

    if in_xla_program() or has_accelerator() or portable_positions() is not None:
        return many()
    count = rows.shape[0]
    if count is None:
        count = tf.shape(rows)[0]
        return tf.cond((count >= fewest) & (count <= _FEW_ROWS), few, many)
    return few() if fewest <= count <= _FEW_ROWS else many()


def merge_leading(x):
    """Merge all axes but the last two."""
    leading = [tf.reduce_prod(tf.shape(x)[:-2])]
    flat = tf.reshape(x, tf.concat([leading, tf.shape(x)[-2:]], 0))
    flat.set_shape((x.shape[:-2].num_elements(), *x.shape[-2:]))
    return flat


def sliced(x, axis, start, size):
    """Slice one axis; the static sizes stay known."""
    starts, sizes = [0] * x.shape.rank, shape_of(x)
    starts[axis], sizes[axis] = start, size
    part = tf.slice(x, starts, sizes)  # not x[...], whose gradient runs on one thread
    # Not `tf.ensure_shape`, which XLA turns into a dynamic shape.
    part.set_shape([n if isinstance(n, int) else None for n in sizes])
    return part


def has_accelerator():
    """Whether TensorFlow sees a GPU or TPU, and so places operations there."""
    return any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


@contextlib.contextmanager
def setting(variable, value):
    """Within this context, a context variable has a value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


_LONGEST = contextvars.ContextVar("longest", default=None)


def portable(longest):
    """Within this context, traced functions use only operations that LiteRT has."""
    # It has neither float64 sines and cosines nor complex numbers; `rotate` takes tables instead.
    return setting(_LONGEST, longest)


def portable_positions():
    """The number of positions of a portable function, or None outside of `portable`."""
    return _LONGEST.get()
