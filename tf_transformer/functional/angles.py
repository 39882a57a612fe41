"""Sines and cosines that stay exact for large positions.

Axes: T positions, W frequencies.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.functional.portable_context import portable_positions


def sines_and_cosines(positions, frequencies, dtype):
    """Sine and cosine of position * frequency, with angles in float64.

    In float32 the angle of position 16,384 would be off by 0.001.
    """
    if portable_positions():
        angles = np.arange(portable_positions())[:, np.newaxis] * frequencies
        tables = (tf.cast(function(angles), dtype) for function in (np.sin, np.cos))
        return tuple(tf.gather(table, positions) for table in tables)
    angles = tf.expand_dims(tf.cast(positions, tf.float64), 1) * frequencies
    return tf.cast(tf.sin(angles), dtype), tf.cast(tf.cos(angles), dtype)
