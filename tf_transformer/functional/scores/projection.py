"""Projections of queries and keys before they are scored.

Axes: D width of the input, F width of the output. Leading axes are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError


def wide_dtype(x):
    """The dtype of scores: float64 for float64, float32 for every other dtype.

    Args:
        x: float tensor.

    Returns:
        `tf.DType`.

    Example:
        >>> wide_dtype(tf.zeros((), tf.float16))
        tf.float32
    """
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def project(x, kernel, name):
    """x W, in the dtype of the scores.

    Args:
        x: float tensor (..., D).
        kernel: float tensor (D, F), W.
        name: str, what an error calls `kernel`.

    Returns:
        (..., F), float32 (float64 for float64).

    Raises:
        ValueError: If the kernel does not have one row for each column of x.

    Example:
        >>> project(tf.ones((2, 3, 4)), tf.ones((4, 5)), "kernel").shape.as_list()
        [2, 3, 5]
    """
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
