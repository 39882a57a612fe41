"""Normalization of each position.

Axes: D model width; the leading axes are "...", or M when flattened.
"""

import tensorflow as tf


def layer_norm(x, gamma, beta, epsilon):
    """gamma (x - mean) / sqrt(variance + epsilon) + beta, Ba et al. 2016, equation 4."""

    # Written out, the gradient takes fewer passes over memory: (g - mean(g) - n mean(g n)) / s with
    # n the normalized x, s the denominator and g = gamma * upstream.
    @tf.custom_gradient
    def normalize(x, gamma, beta):
        centered = x - _row_mean(x)  # (M, D)
        scale = tf.math.rsqrt(_row_mean(tf.square(centered)) + epsilon)  # (M, 1)
        normal = centered * scale  # (M, D)

        def gradient(upstream):
            g = upstream * gamma
            inner = g - (_row_mean(g) + normal * _row_mean(g * normal))
            return inner * scale, _column_sum(upstream * normal), _column_sum(upstream)

        return normal * gamma + beta, gradient

    return _by_rows(normalize, x, gamma, beta)


def rms_norm(x, gamma, epsilon):
    """gamma x / sqrt(mean(x^2) + epsilon), Zhang and Sennrich 2019, equation 4."""

    # The gradient is (g - n mean(g n)) / s, written out as in `layer_norm`.
    @tf.custom_gradient
    def normalize(x, gamma):
        scale = tf.math.rsqrt(_row_mean(tf.square(x)) + epsilon)  # (M, 1)
        normal = x * scale  # (M, D)

        def gradient(upstream):
            g = upstream * gamma
            return (g - normal * _row_mean(g * normal)) * scale, _column_sum(upstream * normal)

        return normal * gamma, gradient

    return _by_rows(normalize, x, gamma)


def _by_rows(normalize, x, *weights):
    outputs = tf.reshape(normalize(tf.reshape(x, (-1, x.shape[-1])), *weights), tf.shape(x))
    outputs.set_shape(x.shape)
    return outputs


def _row_mean(x):
    return tf.reduce_mean(x, axis=-1, keepdims=True)


def _column_sum(x):
    return tf.raw_ops.BiasAddGrad(out_backprop=x)  # faster than reduce_sum on a CPU
