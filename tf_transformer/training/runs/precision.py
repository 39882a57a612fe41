"""The number formats of training, by the names of Keras's dtype policies."""

import contextlib

import keras

from tf_transformer.training.optimizers.global_loss_scale import GlobalLossScale

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@contextlib.contextmanager
def precision_scope(precision):
    """Build the layers in a `with` block for a precision."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def with_loss_scale(optimizer, precision):
    """Return the optimizer for a precision: float16 needs a loss scale."""
    return GlobalLossScale(optimizer) if precision == "mixed_float16" else optimizer
