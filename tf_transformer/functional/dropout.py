"""The random factors of dropout."""

import tensorflow as tf


def dropout_factors(shape, dtype, rate, seed):
    """What dropout multiplies with: 0 with probability `rate`, else 1 / (1 - rate).

    Srivastava et al. 2014. The same shape, rate and seed give the same factors on every path of one
    device: the generator is named, since "auto_select" is another one under XLA. Every factor is
    drawn with 16 bits, which halves the work of 32: `rate` is taken to the nearest k / 65536 with
    k < 65536, and the factor that is not 0 is 1 / (1 - k / 65536), so that the mean is 1.

    Args:
        shape: int tensor (at least one number), of the factors.
        dtype: float dtype.
        rate: float in [0, 1).
        seed: integer tensor (2,).

    Returns:
        Tensor of `shape` and `dtype`.

    Example:
        >>> sorted(set(dropout_factors((99,), tf.float32, 0.5, (1, 2)).numpy().tolist()))
        [0.0, 2.0]
    """
    shape = tf.convert_to_tensor(shape)
    outer, width = shape[:-1], shape[-1]
    pairs = (width + 1) // 2  # of factors: one int32 gives two
    words = tf.random.stateless_uniform(
        tf.concat([outer, [pairs]], 0), seed, None, None, tf.int32, alg="philox"
    )
    draws = tf.reshape(tf.bitcast(words, tf.int16), tf.concat([outer, [2 * pairs]], 0))
    dropped = min(round(rate * 2**16), 2**16 - 1)  # of the 2**16 numbers that can be drawn
    kept = draws[..., :width] >= dropped - 2**15
    return tf.cast(kept, dtype) * tf.constant(2**16 / (2**16 - dropped), dtype)


def fold_in(seed, number):
    """A seed for part `number` of a computation, which parts share no draws with others.

    Args:
        seed: integer tensor (2,).
        number: int or scalar int32 tensor.

    Returns:
        Integer tensor (2,).

    Example:
        >>> fold_in((1, 2), 3).shape.as_list()
        [2]
    """
    return tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
