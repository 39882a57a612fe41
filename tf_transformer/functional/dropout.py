"""Random factors for dropout."""

import tensorflow as tf


def dropout_factors(shape, dtype, rate, seed):
    """Factors that dropout multiplies by: 0 with probability `rate`, else 1 / (1 - rate)."""
    # Each factor uses 16 random bits, half the work of 32: `rate` is rounded to the nearest
    # k / 65536 with k < 65536, and a nonzero factor is 1 / (1 - k / 65536), so the mean is 1. The
    # generator is explicit, since "auto_select" picks another one under XLA.
    shape = tf.convert_to_tensor(shape)
    outer, width = shape[:-1], shape[-1]
    pairs = (width + 1) // 2  # one int32 gives two factors
    words = tf.random.stateless_uniform(
        tf.concat([outer, [pairs]], 0), seed, None, None, tf.int32, alg="philox"
    )
    draws = tf.reshape(tf.bitcast(words, tf.int16), tf.concat([outer, [2 * pairs]], 0))
    dropped = min(round(rate * 2**16), 2**16 - 1)  # out of 2**16 possible draws
    kept = draws[..., :width] >= dropped - 2**15
    return tf.cast(kept, dtype) * tf.constant(2**16 / (2**16 - dropped), dtype)


def fold_in(seed, number):
    """Derive a seed for part `number` of a computation; no two parts share draws."""
    return tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
