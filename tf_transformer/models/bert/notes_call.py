"""What the notes' functions have in common: each call makes a layer and applies it."""

import keras
import tensorflow as tf


def unique_name(name):
    """A name that no layer of this kind has yet: a Keras model wants them all different.

    Args:
        name: str, the scope in the published checkpoints, which the first one gets.

    Returns:
        str.

    Example:
        >>> keras.utils.clear_session()
        >>> unique_name("self"), unique_name("self")
        ('self', 'self_1')
    """
    number = keras.backend.get_uid(name) - 1
    return f"{name}_{number}" if number else name


def as_tensor(values, name="from_tensor, to_tensor"):
    """A float tensor of what is no tensor yet.

    Args:
        values: float tensor, `keras.Input`, array or list.
        name: str, of the argument.

    Returns:
        A tensor, or the `keras.Input`.

    Raises:
        ValueError: not floats.

    Example:
        >>> as_tensor([[1.0]]).shape.as_list()
        [1, 1]
    """
    values = values if keras.backend.is_keras_tensor(values) else tf.convert_to_tensor(values)
    if not tf.as_dtype(values.dtype).is_floating:
        raise ValueError(f"{name}: expected floats, got {tf.as_dtype(values.dtype).name}.")
    return values
