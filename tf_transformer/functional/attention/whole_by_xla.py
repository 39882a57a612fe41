"""Whole attention in the order of operations that XLA runs fastest on a CPU.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H head width.
Leading axes (batch, heads) are "...".
"""

import itertools

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from tf_transformer.functional.attention.product import as_factor, product
from tf_transformer.functional.attention.rowwise_loops import merge_leading
from tf_transformer.functional.attention.whole import BLOCKED_SCORE, blocked_or_future
from tf_transformer.functional.dropout import dropout_factors

# Longer sums than the first are made of sums of at most the second (benchmarks/attention/NOTES.md).
_LONGEST_SUM, _ROWS = 512, 384


def whole_attention_by_xla(
    q, k, v, blocked=None, bias=None, *, causal=False, dropout=None, weights_wanted=True
):
    """`whole_attention` with its own gradient, for a function that XLA compiles.

    Three things make XLA's programs for a CPU fast. The softmax divides at the end, T x H times
    instead of T x S times. The backward pass starts from exp(score - maximum) and the sums of its
    rows, so that it has no second softmax. And no product has a large transposed left side, see
    `_product_over_rows`.

    Args:
        q, k, v, blocked, bias, causal, dropout: see `whole_attention`.
        weights_wanted: bool, whether to return the weights.

    Returns:
        `(output, weights)` as `whole_attention`; None in place of weights that are not wanted.

    Example:
        >>> q = tf.constant([[0.0, 1.0], [1.0, 0.0]])
        >>> compiled = tf.function(whole_attention_by_xla, jit_compile=True)
        >>> compiled(q, q, q, causal=True)[1][0].numpy().tolist()
        [1.0, 0.0]
    """
    dtype, wide = q.dtype, tf.float64 if q.dtype == tf.float64 else tf.float32
    shape = tf.concat([tf.shape(q)[:-1], tf.shape(k)[-2:-1]], 0)  # of the scores, (..., T, S)

    def full(x):
        return merge_leading(tf.broadcast_to(x, shape))  # (R, T, S); XLA makes no copy

    blocked = blocked_or_future(blocked, causal, q, k)
    blocked = None if blocked is None else full(blocked)
    factors = None if dropout is None else full(dropout_factors(shape, wide, *dropout))
    inputs = [merge_leading(as_factor(x, compiled=True)) for x in (q, k, v)]
    if bias is not None:
        inputs.append(full(tf.cast(bias, wide)))
    output, *weights = _attend(inputs, blocked, factors, weights_wanted)
    output = tf.reshape(output, tf.concat([shape[:-1], tf.shape(v)[-1:]], 0))  # (..., T, H_v)
    weights = tf.cast(tf.reshape(weights[0], shape), dtype) if weights_wanted else None
    return tf.cast(output, dtype), weights


def _attend(inputs, blocked, factors, weights_wanted):
    """The same for q (R, T, H), k (R, S, H), v (R, S, H_v), bias, mask and factors (R, T, S)."""

    @tf.custom_gradient
    def attend(q, k, v, bias=None):
        wide = tf.float64 if q.dtype == tf.float64 else tf.float32
        scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], wide))
        scores, steepness = product(q, k, transpose_b=True), scale  # (R, T, S)
        if bias is not None or blocked is not None:
            scores, steepness = scores * scale, tf.ones((), wide)
        scores = scores if bias is None else scores + bias
        scores = scores if blocked is None else tf.where(blocked, BLOCKED_SCORE, scores)
        highest = tf.reduce_max(scores, -1, keepdims=True)  # (R, T, 1)
        # Scaling the difference, not the scores, saves a pass over them.
        powers = tf.exp((scores - highest) * steepness)
        sums = tf.reduce_sum(powers, -1, keepdims=True)  # (R, T, 1)
        dropped = powers if factors is None else powers * factors
        output = product(dropped, v) / sums  # (R, T, H_v)

        def gradient(up, *up_weights):
            slope = product(up, v, transpose_b=True)  # with respect to the weights, (R, T, S)
            slope = slope if factors is None else slope * factors
            mean = tf.reduce_sum(up * output, -1, keepdims=True)  # (R, T, 1)
            for more in up_weights:
                slope += more
                mean += tf.reduce_sum(more * powers, -1, keepdims=True) / sums
            dscores = powers * ((slope - mean) / sums)
            if blocked is not None:  # a row without a free key has nonzero weights
                dscores = tf.where(blocked, 0.0, dscores)
            dq = product(dscores, k) * scale
            dk = _product_over_rows(dscores, q) * scale
            dv = _product_over_rows(dropped, tf.cast(up / sums, v.dtype))
            gradients = [tf.cast(g, x.dtype) for g, x in zip((dq, dk, dv), (q, k, v), strict=True)]
            return gradients if bias is None else [*gradients, dscores]

        return (output, powers / sums) if weights_wanted else (output,), gradient

    return attend(*inputs)


def _product_over_rows(x, y):
    """x^T y, (R, S, H), of x (R, T, S) and y (R, T, H): the transpose of y^T x.

    On a CPU XLA multiplies slowly if a large left side is transposed, so the smaller matrix is
    transposed and copied first. The barriers keep XLA from turning both back into one product.
    That product is slow again if the sum is long, so it is made of shorter ones.
    """

    def over(rows):
        left = _barrier(tf.linalg.matrix_transpose(y[:, rows]))  # (R, H, T)
        return tf.linalg.matrix_transpose(_barrier(product(left, x[:, rows])))

    return sum(over(rows) for rows in _short_sums(x.shape[1]))


def _short_sums(length):
    if length is None or length <= _LONGEST_SUM:
        return [slice(None)]
    count = -(-length // _ROWS)
    ends = [length * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(ends)]


def _barrier(x):
    (same,) = xla.optimization_barrier(x)
    return same


# Registered for the operation: a gradient with a `tf.custom_gradient` inside cannot be exported.
@tf.RegisterGradient("XlaOptimizationBarrier")
def _gradient_of_barrier(operation, *upstream):
    return upstream
