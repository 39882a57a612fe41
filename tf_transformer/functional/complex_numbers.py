"""Complex tensors as real ones of twice the width: real parts first, then imaginary parts.

Axes: D width of the input, F width of the output, T position; the leading axes are "...".

Products use real tensors, which takes about half as long on a CPU: oneDNN has no complex kernels.
"""

import math

import tensorflow as tf


def to_real(z):
    """Concatenate real and imaginary parts."""
    return tf.concat([tf.math.real(z), tf.math.imag(z)], axis=-1)


def to_complex(x):
    """Undo `to_real`."""
    return tf.complex(*tf.split(x, 2, axis=-1))


def complex_linear(x, kernel, bias=None):
    """Multiply by a complex matrix and add a complex bias, all as pairs of real tensors.

    (x + i y)(A + i B) + c + i d = (x A - y B + c) + i (x B + y A + d), Wang et al. 2020, "Encoding
    Word Order in Complex Embeddings", equation 10.
    """
    a, b = kernel
    blocks = tf.concat([tf.concat([a, b], 1), tf.concat([-b, a], 1)], 0)  # (2 D, 2 F)
    flat = tf.matmul(tf.reshape(x, (-1, blocks.shape[0])), blocks)  # (M, 2 F)
    if bias is not None:
        flat += tf.concat(bias, 0)
    outputs = tf.reshape(flat, tf.concat([tf.shape(x)[:-1], [blocks.shape[1]]], 0))
    outputs.set_shape((*x.shape[:-1], blocks.shape[1]))
    return outputs  # (..., 2 F)


def complex_wave(amplitude, frequency, phase, position):
    """r exp(i (w pos + theta)), a wave over positions.

    Wang et al. 2020, "Encoding Word Order in Complex Embeddings", equation 5. The product w pos is
    float64 and reduced to [-pi, pi]: in float32 the wave would be off by 1e-5 after some 200
    positions.
    """
    turned = tf.cast(frequency, tf.float64) * tf.cast(position, tf.float64)
    turned -= tf.stop_gradient(2 * math.pi * tf.round(turned / (2 * math.pi)))
    angle = tf.cast(turned, phase.dtype) + phase
    return tf.complex(amplitude * tf.cos(angle), amplitude * tf.sin(angle))
