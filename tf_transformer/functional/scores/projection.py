"""Projections of queries and keys before they are scored.

Axes: D width of the input, F width of the output. Leading axes are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError


def wide_dtype(x):
    """The dtype of scores: float64 for float64, float32 for every other dtype."""
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def project(x, kernel, name):
    """x W, in the dtype of the scores."""
    dtype, kernel = wide_dtype(x), tf.convert_to_tensor(kernel)
    if kernel.shape.rank != 2 or not x.shape[-1:].is_compatible_with(kernel.shape[:1]):
        raise ArgumentError(
            name,
            f"shape ({x.shape[-1]}, any), a row for each column of the input {tuple(x.shape)}",
            kernel.shape,
        )
    rows, width = kernel.shape
    flat = tf.reshape(tf.cast(x, dtype), (-1, rows))  # one product, not one for each batch row
    projected = tf.matmul(flat, tf.cast(kernel, dtype))
    projected = tf.reshape(projected, tf.concat([tf.shape(x)[:-1], [width]], 0))
    projected.set_shape((*x.shape[:-1], width))
    return projected
