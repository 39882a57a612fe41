"""Sinusoidal positions, computed in float64 and stored in float32.

Axes: T position, D model width.
"""

import numpy as np


def get_angles(position, i, d_model):
    """Angle of column i at a position: position / 10000^(2 (i // 2) / d_model).

    "Attention Is All You Need", section 3.5.
    """
    exponent = 2 * (np.asarray(i, np.int64) // 2) / np.float64(d_model)
    return np.asarray(position, np.float64) / np.power(10000.0, exponent)


def sinusoidal_positions(length, d_model):
    """Sine of the angle in the even columns, cosine in the odd ones, interleaved."""
    angles = get_angles(np.arange(length)[:, None], np.arange(d_model)[None, :], d_model)
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return angles.astype(np.float32)
