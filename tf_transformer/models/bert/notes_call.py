"""Helpers for the functions of the notes, which create a layer and apply it on each call."""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError


def unique_name(name):
    """Return an unused layer name: a Keras model requires unique names."""
    number = keras.backend.get_uid(name) - 1
    return f"{name}_{number}" if number else name


def as_tensor(values, name="from_tensor, to_tensor"):
    """Convert values to a float tensor; a `keras.Input` is returned unchanged."""
    values = values if keras.backend.is_keras_tensor(values) else tf.convert_to_tensor(values)
    if not tf.as_dtype(values.dtype).is_floating:
        raise ArgumentError(name, "floats", tf.as_dtype(values.dtype).name)
    return values
