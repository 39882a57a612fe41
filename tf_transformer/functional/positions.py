"""Formulas for positions: sinusoidal, rotary, and by the distance between two positions.

Axes: B batch, N heads, T length, D model width or distances, H head width, W frequencies.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.functional.tensors import in_xla_program, portable_positions, wide_dtype


def sines_and_cosines(positions, frequencies, dtype):
    """Sine and cosine of position * frequency."""
    # In float32 the angle of position 16,384 would be off by 0.001.
    if portable_positions():
        angles = np.arange(portable_positions())[:, np.newaxis] * frequencies
        tables = (tf.cast(function(angles), dtype) for function in (np.sin, np.cos))
        return tuple(tf.gather(table, positions) for table in tables)
    angles = tf.expand_dims(tf.cast(positions, tf.float64), 1) * frequencies
    return tf.cast(tf.sin(angles), dtype), tf.cast(tf.cos(angles), dtype)


def get_angles(position, i, d_model):
    """position / 10000^(2 (i // 2) / d_model), (T, D), of positions (T, 1) and columns i (1, D)."""
    exponent = 2 * (np.asarray(i, np.int64) // 2) / np.float64(d_model)
    return np.asarray(position, np.float64) / np.power(10000.0, exponent)


def sinusoidal_positions(length, d_model):
    """Sine of the angle in the even columns, cosine in the odd ones, interleaved."""
    angles = get_angles(np.arange(length)[:, None], np.arange(d_model)[None, :], d_model)
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return angles.astype(np.float32)


PAIRINGS = ("interleaved", "halves")


def rotary_frequencies(width, base=10000.0, stretch=1.0, bands=None):
    """Radians per position of each pair, float64 (H / 2,): 1 / (stretch base^(2i / H))."""
    frequencies = base ** (-np.arange(0, width, 2) / width)
    if bands is None:
        return frequencies / stretch
    # Llama 3.1: slow pairs are stretched, fast ones are not, and those between are interpolated.
    low, high, length = bands
    turns = length * frequencies / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return kept * frequencies + (1 - kept) * frequencies / stretch


def rotate(heads, positions, base=10000.0, stretch=1.0, pairing="interleaved", bands=None):
    """(x_1, x_2) -> (x_1 cos a - x_2 sin a, x_1 sin a + x_2 cos a), for pairs of columns."""
    wide = wide_dtype(heads)
    frequencies = rotary_frequencies(heads.shape[-1], base, stretch, bands)
    sine, cosine = sines_and_cosines(positions, frequencies, wide)  # (T, H / 2)
    turned = _turn(tf.cast(heads, wide), cosine, sine, pairing)
    turned.set_shape(heads.shape)
    return tf.cast(turned, heads.dtype)


def _turn(x, cosine, sine, pairing):
    @tf.custom_gradient
    def turn(x):
        # The gradient rotates back, which is faster than differentiating each step.
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


def t5_buckets(distances, num_buckets, max_distance, causal):
    """The bucket of each distance: its own for a short one, a shared one for a longer one."""
    # Half of the buckets have one distance each, the others grow logarithmically up to
    # `max_distance`. Without `causal`, half of all buckets are for keys after the query.
    distances = np.asarray(distances, np.int64)
    first = 0
    if causal:
        distances = np.maximum(-distances, 0)
    else:
        num_buckets //= 2
        first, distances = np.where(distances > 0, num_buckets, 0), np.abs(distances)
    exact = num_buckets // 2
    # float32, as in the published models: it matters where the logarithm is a whole number.
    ratio = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact))
    ratio = ratio / np.float32(np.log(max_distance / exact))
    longer = exact + (ratio * np.float32(num_buckets - exact)).astype(np.int64)
    return first + np.where(distances < exact, distances, np.minimum(longer, num_buckets - 1))


def alibi_slopes(num_heads):
    """How much each head's scores fall per position of distance: 2^(-8 n / N) for n = 1..N."""
    # If N is no power of two: the slopes of the next smaller power, then every other slope of twice
    # that power, as in the authors' code.
    power = 2 ** int(np.log2(num_heads))

    def slopes(count):
        return 2.0 ** (-8.0 / count * np.arange(1, count + 1))

    others = slopes(2 * power)[0::2][: num_heads - power]
    return np.concatenate([slopes(power), others]).astype(np.float32)
