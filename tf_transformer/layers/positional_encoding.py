"""Sinusoidal positional encoding as a layer.

Axes: B batch, T length, D model width.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.positions import get_angles, sinusoidal_positions
from tf_transformer.layers.notes_layer import NotesLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class Positional_Encoding(NotesLayer, keras.layers.Layer):
    """Add a sinusoidal encoding of its position to every token.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)),
    "Attention Is All You Need", section 3.5.

    Args:
        max_position: int, the number of positions in the table.

    Call arguments:
        x: float tensor (B, T, D).
        start: int or scalar int32 tensor, the position of the first token of `x`: decoding with
            a cache feeds one token at a time.

    Returns:
        (B, T, D), `x` plus the encodings of positions start..start+T-1.

    Raises:
        ValueError: If T is larger than `max_position`.

    Example:
        >>> Positional_Encoding().positional_encoding(1, 4).tolist()
        [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(self, max_position=2048, **kwargs):
        super().__init__(**kwargs)
        if max_position < 1:
            raise ArgumentError("max_position", "at least 1", max_position)
        self.max_position = max_position
        self._table = None

    def get_angles(self, position, i, d_model):
        """Angles in radians, float64: see `functional.positions.get_angles`."""
        return get_angles(position, i, d_model)

    def positional_encoding(self, position, d_model):
        """Return the table of encodings, a float32 array (1, position, d_model)."""
        return sinusoidal_positions(position, d_model)[np.newaxis]

    def build(self, x_shape):
        self._table = self.positional_encoding(self.max_position, x_shape[-1])

    def call(self, x, start=0):
        with tf.control_dependencies(self._length_checks(x)):
            codes = tf.slice(self._table, (0, start, 0), (1, tf.shape(x)[1], -1))  # (1, T, D)
        return x + tf.cast(codes, x.dtype)

    def _length_checks(self, x):
        expected = f"at most {self.max_position} positions, those of the table"
        remedy = "Shorten the sequence or enlarge the table (max_position, pe_input, pe_target)."
        message = f"{self.name}: expected {expected}, got more. {remedy}"
        if x.shape[1] is None:
            check = tf.debugging.assert_less_equal(tf.shape(x)[1], self.max_position, message)
            return [] if check is None else [check]  # None in eager mode
        if x.shape[1] > self.max_position:
            raise ArgumentError("x", expected, f"length {x.shape[1]}", remedy, place=self.name)
        return []

    def get_config(self):
        return {**super().get_config(), "max_position": self.max_position}
