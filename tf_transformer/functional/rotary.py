"""Rotary positions: pairs of columns turned by an angle that grows with the position.

Axes: B batch, N heads, T length, H head width.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.functional.angles import sines_and_cosines
from tf_transformer.functional.portable_context import portable_positions
from tf_transformer.functional.xla_context import in_xla_program

PAIRINGS = ("interleaved", "halves")


def rotate(heads, positions, base=10000.0, stretch=1.0, pairing="interleaved"):
    """Turn each pair of columns by its angle; a product of two depends on their distance alone.

    (x_1, x_2) -> (x_1 cos a - x_2 sin a, x_1 sin a + x_2 cos a) with a = position / stretch /
    base^(2i / H) for pair i, Su et al. 2021, "RoFormer", section 3.2.2. `stretch` interpolates
    between the positions of training, Chen et al. 2023, "Extending Context Window of Large Language
    Models via Positional Interpolation", section 2.3.
    """
    width = heads.shape[-1]
    wide = tf.float64 if heads.dtype == tf.float64 else tf.float32
    frequencies = 1 / (stretch * base ** (np.arange(0, width, 2) / width))
    sine, cosine = sines_and_cosines(positions, frequencies, wide)  # (T, H / 2)
    turned = _turn(tf.cast(heads, wide), cosine, sine, pairing)
    turned.set_shape(heads.shape)
    return tf.cast(turned, heads.dtype)


def _turn(x, cosine, sine, pairing):
    @tf.custom_gradient
    def turn(x):
        # The gradient turns back, which is faster than differentiating each step.
        return _products(x, cosine, sine, pairing), lambda g: _turn(g, cosine, -sine, pairing)

    return turn(x)


def _products(x, cosine, sine, pairing):
    if pairing == "halves":
        first, second = tf.split(x, 2, axis=-1)
        return tf.concat([first * cosine - second * sine, first * sine + second * cosine], -1)
    pairs = tf.reshape(x, tf.concat([tf.shape(x)[:-1], [x.shape[-1] // 2, 2]], 0))
    if in_xla_program() or portable_positions():  # which cannot read two numbers as a complex one
        first, second = tf.unstack(pairs, axis=-1)
        turned = tf.stack([first * cosine - second * sine, first * sine + second * cosine], -1)
    else:  # one product instead of slices, six times as fast
        dtype = tf.complex128 if x.dtype == tf.float64 else tf.complex64
        turned = tf.bitcast(tf.bitcast(pairs, dtype) * tf.complex(cosine, sine), x.dtype)
    return tf.reshape(turned, tf.shape(x))
