"""Sinusoidal positions of any length.

Axes: B batch, T length, D model width.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.angles import sines_and_cosines
from tf_transformer.layers.positions.positions import Positions


@keras.saving.register_keras_serializable(package="tf_transformer")
class SinusoidalPositions(Positions):
    """Add the sines and cosines of `Positional_Encoding`, without a longest text.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)), "Attention Is
    All You Need", section 3.5.

    Raises:
        ValueError: If the width D is odd: sines and cosines come in pairs.

    Example:
        >>> SinusoidalPositions().add(tf.zeros((1, 1, 4))).numpy().tolist()
        [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def add(self, x, start=0):
        """See `Positions`: sines and cosines of the positions from `start` on."""
        width = x.shape[-1]
        if width % 2:
            raise ArgumentError("SinusoidalPositions", "an even model width", width)
        frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)
        positions = start + tf.range(tf.shape(x)[1])
        codes = tf.stack(sines_and_cosines(positions, frequencies, x.dtype), -1)  # (T, D / 2, 2)
        return x + tf.reshape(codes, (-1, width))
