"""Complex tensors as real ones of twice the width: real parts first, then imaginary parts.

Axes: D width of the input, F width of the output, T position; the leading axes are "...".

Products are computed with real tensors, which takes about half the time of complex ones on a CPU:
oneDNN has no complex kernels.
"""

import math

import tensorflow as tf


def to_real(z):
    """Concatenate real and imaginary parts.

    Args:
        z: complex tensor (..., D).

    Returns:
        float tensor (..., 2 D): [Re z, Im z].

    Example:
        >>> to_real(tf.constant([1 + 3j, 2 + 4j])).numpy().tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    return tf.concat([tf.math.real(z), tf.math.imag(z)], axis=-1)


def to_complex(x):
    """Undo `to_real`.

    Args:
        x: float32 or float64 tensor (..., 2 D).

    Returns:
        complex64 or complex128 tensor (..., D).

    Example:
        >>> to_complex(tf.constant([1.0, 2.0, 3.0, 4.0])).numpy().tolist()
        [(1+3j), (2+4j)]
    """
    return tf.complex(*tf.split(x, 2, axis=-1))


def complex_linear(x, kernel, bias=None):
    """Multiply by a complex matrix and add a complex bias, all as pairs of real tensors.

    (x + i y)(A + i B) + c + i d = (x A - y B + c) + i (x B + y A + d), Wang et al. 2020, "Encoding
    Word Order in Complex Embeddings", equation 10.

    Args:
        x: float tensor (..., 2 D), see `to_real`.
        kernel: `(A, B)`, two tensors (D, F).
        bias: None, or `(c, d)`, two tensors (F,).

    Returns:
        (..., 2 F), see `to_complex`.

    Example:
        >>> i = tf.constant([[0.0]]), tf.constant([[1.0]])
        >>> complex_linear(tf.constant([[2.0, 3.0]]), i).numpy().tolist()  # (2 + 3i) i = -3 + 2i
        [[-3.0, 2.0]]
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

    Args:
        amplitude, frequency, phase: float tensors r, w (radians per position) and theta (radians)
            that broadcast to (..., T, D); float32, or float64 for complex128.
        position: integer tensor (T, 1).

    Returns:
        complex64 or complex128 tensor (..., T, D).

    Example:
        >>> quarter = tf.constant([math.pi / 2])
        >>> wave = complex_wave(tf.constant([2.0]), quarter, tf.zeros(1), tf.constant([[0], [1]]))
        >>> wave.numpy().real.round(6).tolist(), wave.numpy().imag.round(6).tolist()
        ([[2.0], [-0.0]], [[0.0], [2.0]])
    """
    turned = tf.cast(frequency, tf.float64) * tf.cast(position, tf.float64)
    turned -= tf.stop_gradient(2 * math.pi * tf.round(turned / (2 * math.pi)))
    angle = tf.cast(turned, phase.dtype) + phase
    return tf.complex(amplitude * tf.cos(angle), amplitude * tf.sin(angle))
