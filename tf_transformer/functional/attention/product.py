"""Matrix products that accumulate in float32 or wider."""

import tensorflow as tf


def as_factor(x, compiled):
    """Cast a tensor to a dtype that `product` accepts."""
    wide = x.dtype in (tf.float32, tf.float64) or (compiled and x.dtype == tf.bfloat16)
    return x if wide else tf.cast(x, tf.float32)


def product(x, y, transpose_a=False, transpose_b=False):
    """Matrix product x y; bfloat16 matrices give a float32 result.

    Matrix units multiply bfloat16 and accumulate in float32. `tf.matmul` would round the sum to
    bfloat16; the op that keeps float32 has a kernel only under XLA, and no registered gradient.
    """
    if tf.bfloat16 not in (x.dtype, y.dtype):
        return tf.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    x, y = (tf.cast(operand, tf.bfloat16) for operand in (x, y))
    x = tf.linalg.matrix_transpose(x) if transpose_a else x  # XLA fuses these into the product
    y = tf.linalg.matrix_transpose(y) if transpose_b else y

    @tf.custom_gradient
    def multiply(x, y):
        def gradient(upstream):
            gradients = product(upstream, y, transpose_b=True), product(x, upstream, True)
            return [tf.cast(g, tf.bfloat16) for g in gradients]

        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32), gradient

    return multiply(x, y)
