"""Sinusoidal positions, computed in float64 and stored in float32.

Axes: T position, D model width.
"""

import numpy as np


def get_angles(position, i, d_model):
    """Angle of column i at a position: position / 10000^(2 (i // 2) / d_model).

    "Attention Is All You Need", section 3.5.

    Args:
        position: array (T, 1) of positions, 0 for the first token.
        i: array (1, D) of column numbers.
        d_model: int, the width D.

    Returns:
        float64 array (T, D), in radians.

    Example:
        >>> get_angles(np.array([[3]]), np.array([[0, 1]]), 2).tolist()
        [[3.0, 3.0]]
    """
    exponent = 2 * (np.asarray(i, np.int64) // 2) / np.float64(d_model)
    return np.asarray(position, np.float64) / np.power(10000.0, exponent)


def sinusoidal_positions(length, d_model):
    """Sine of the angle in the even columns, cosine in the odd ones, interleaved.

    Args:
        length: int, number of positions.
        d_model: int, the width D.

    Returns:
        float32 array (length, d_model), values in [-1, 1].

    Example:
        >>> sinusoidal_positions(1, 4).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    angles = get_angles(np.arange(length)[:, None], np.arange(d_model)[None, :], d_model)
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return angles.astype(np.float32)
