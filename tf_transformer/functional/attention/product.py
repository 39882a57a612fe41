"""Matrix products whose sums are never narrower than float32."""

import tensorflow as tf


def as_factor(x, compiled):
    """A tensor in the dtype in which `product` takes it.

    Args:
        x: float tensor.
        compiled: bool, whether XLA compiles this.

    Returns:
        `x` as it is if it is float32 or float64, or bfloat16 inside XLA; else in float32.

    Example:
        >>> as_factor(tf.zeros((), tf.bfloat16), compiled=False).dtype
        tf.float32
    """
    wide = x.dtype in (tf.float32, tf.float64) or (compiled and x.dtype == tf.bfloat16)
    return x if wide else tf.cast(x, tf.float32)


def product(x, y, transpose_a=False, transpose_b=False):
    """x y, of bfloat16 matrices with a float32 result.

    Matrix units multiply bfloat16 and add in float32. `tf.matmul` would round that sum to bfloat16;
    the operation that keeps it has a kernel under XLA only, and no gradient of its own.

    Args:
        x: tensor (..., n, m), float32, float64 or, inside XLA only, bfloat16.
        y: tensor (..., m, p); it takes the dtype of `x` if that is bfloat16, and the other way
            round.
        transpose_a, transpose_b: bool, take x or y transposed.

    Returns:
        (..., n, p), float32 or float64.

    Example:
        >>> product(tf.ones((2, 3)), tf.ones((2, 3)), transpose_b=True).shape.as_list()
        [2, 2]
    """
    if tf.bfloat16 not in (x.dtype, y.dtype):
        return tf.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    x, y = (tf.cast(operand, tf.bfloat16) for operand in (x, y))
    x = tf.linalg.matrix_transpose(x) if transpose_a else x  # XLA makes them part of the product
    y = tf.linalg.matrix_transpose(y) if transpose_b else y

    @tf.custom_gradient
    def multiply(x, y):
        def gradient(upstream):
            gradients = product(upstream, y, transpose_b=True), product(x, upstream, True)
            return [tf.cast(g, tf.bfloat16) for g in gradients]

        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32), gradient

    return multiply(x, y)
