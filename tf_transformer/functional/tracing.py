"""What is being traced, a program for XLA or one portable to LiteRT, and its wide dtype."""

import contextlib
import contextvars

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext


def in_xla_program():
    """Whether the caller is being traced for XLA, inside `tf.function(jit_compile=True)`."""
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def wide_dtype(x):
    """The dtype of scores, statistics and angles: float64 for float64, else float32."""
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def has_accelerator():
    """Whether TensorFlow sees a GPU or TPU, and so places operations there."""
    return any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


_LONGEST = contextvars.ContextVar("longest", default=None)


@contextlib.contextmanager
def portable(longest):
    """Within this context, traced functions use only operations that LiteRT has."""
    # It has neither float64 sines and cosines nor complex numbers; `rotate` takes tables instead.
    token = _LONGEST.set(longest)
    try:
        yield
    finally:
        _LONGEST.reset(token)


def portable_positions():
    """The number of positions of a portable function, or None outside of `portable`."""
    return _LONGEST.get()
