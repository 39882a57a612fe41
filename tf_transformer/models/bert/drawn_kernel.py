"""Initializer of BERT's weights that can be skipped while a checkpoint is loaded."""

import contextlib
import contextvars

import keras
import tensorflow as tf

_drawing = contextvars.ContextVar("drawing", default=True)


@keras.saving.register_keras_serializable(package="tf_transformer")
class DrawnKernel(keras.initializers.TruncatedNormal):
    """Truncated normal values, or uninitialized memory inside `without_drawing`."""

    def __call__(self, shape, dtype=None):
        if _drawing.get():
            return super().__call__(shape, dtype)
        return tf.raw_ops.Empty(shape=shape, dtype=dtype or keras.backend.floatx())


@contextlib.contextmanager
def without_drawing():
    """Build a model without drawing the initial weights of its encoder.

    Drawing them takes longer than reading a checkpoint. Every variable with a `DrawnKernel` must
    be assigned afterwards.
    """
    token = _drawing.set(False)
    try:
        yield
    finally:
        _drawing.reset(token)
