"""Attention that computes all scores at once, also in the order that XLA runs fastest on a CPU.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H head width.
Leading axes (batch, heads) are "...".
"""

import functools
import itertools

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.tensors import merge_leading, shape_of, wide_dtype


def as_factor(x, compiled):
    """Cast a tensor to a dtype that `product` accepts."""
    wide = x.dtype in (tf.float32, tf.float64) or (compiled and x.dtype == tf.bfloat16)
    return x if wide else tf.cast(x, tf.float32)


def product(x, y, transpose_a=False, transpose_b=False):
    """Matrix product x y. If either is bfloat16, both are rounded to it; the result is float32."""
    if tf.bfloat16 not in (x.dtype, y.dtype):
        return tf.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    # Matrix units multiply bfloat16 and accumulate in float32. `tf.matmul` would round the sum to
    # bfloat16; the op that keeps float32 has a kernel only under XLA, and no registered gradient.
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


# Value of a blocked score. In float32, exp(-1e9 - max) is exactly 0 next to any free key, and a row
# with only blocked keys has equal scores: a uniform average, never NaN.
BLOCKED_SCORE = -1e9


def whole_attention(
    q, k, v, blocked=None, bias=None, *, causal=False, dropout=None, weights_wanted=True
):
    """softmax(Q K^T / sqrt(d_k) + bias) V and its weights; see `scaled_dot_product_attention`.

    `blocked` is None or a bool tensor that broadcasts to (..., T, S), True = blocked.
    """
    dtype = q.dtype
    q, k, v = (as_factor(x, compiled=False) for x in (q, k, v))
    blocked = blocked_or_future(blocked, causal, q, k)
    weights = tf.nn.softmax(attention_scores(q, k, blocked, bias))  # (..., T, S)
    dropped = weights
    if dropout is not None:
        dropped = weights * dropout_factors(tf.shape(weights), weights.dtype, *dropout)
    output = product(dropped, v)  # (..., T, H_v)
    if isinstance(bias, ByDistance) and bias.values is not None:
        output += bias.output(dropped)
    return tf.cast(output, dtype), tf.cast(weights, dtype) if weights_wanted else None


def blocked_or_future(blocked, causal, q, k):
    """Combine a mask with `causal`; see `whole_attention` for the arguments."""
    if not causal:
        return blocked
    queries, keys = (tf.range(tf.shape(x)[-2]) for x in (q, k))
    future = keys > tf.expand_dims(queries, 1)  # (T, S)
    return future if blocked is None else blocked | future


def attention_scores(q, k, blocked, bias):
    """Q K^T / sqrt(d_k) + bias, or `BLOCKED_SCORE` where blocked; see `whole_attention`."""
    dtype = wide_dtype(q)
    scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], dtype))
    if q.dtype == dtype:  # scaling Q takes T x H products, scaling the scores T x S
        scores = product(q * scale, k, transpose_b=True)  # (..., T, S)
    else:
        scores = product(q, k, transpose_b=True) * scale
    if isinstance(bias, ByDistance):
        bias = bias.tensor(q, shape_of(k)[-2])
    if bias is not None:
        scores += tf.cast(bias, dtype)
    if blocked is not None:
        scores = tf.where(blocked, tf.cast(BLOCKED_SCORE, dtype), scores)
    return scores


def dropout_factors(shape, dtype, rate, seed):
    """Factors that dropout multiplies by: 0 with probability `rate`, else 1 / (1 - rate)."""
    # Each factor uses 16 random bits, half the work of 32: `rate` is rounded to the nearest
    # k / 65536 with k < 65536, and a nonzero factor is 1 / (1 - k / 65536), so the mean is 1.
    shape = tf.convert_to_tensor(shape)
    outer, width = shape[:-1], shape[-1]
    pairs = (width + 1) // 2  # one int32 gives two factors
    words = _random_words(tf.concat([outer, [pairs]], 0), seed)
    draws = tf.reshape(tf.bitcast(words, tf.int16), tf.concat([outer, [2 * pairs]], 0))
    dropped = min(round(rate * 2**16), 2**16 - 1)  # out of 2**16 possible draws
    kept = draws[..., :width] >= dropped - 2**15
    return tf.cast(kept, dtype) * tf.constant(2**16 / (2**16 - dropped), dtype)


def fold_in(seed, number):
    """Derive a seed for part `number` of a computation; no two parts share draws."""
    return tf.stack([_random_words([], seed), number])


def _random_words(shape, seed):
    """Draw int32 values, as `tf.random.stateless_uniform` does with "philox"."""
    # That takes 48 operations, which delay the start of training, and "auto_select" draws other
    # values under XLA.
    draw = functools.partial(tf.raw_ops.StatelessRandomUniformFullIntV2, alg=1)  # Philox
    constant = tf.constant([0x02461E293EC8F720], tf.uint64)  # TensorFlow's, for the same draws
    mixed = draw(shape=[2], key=constant, counter=tf.cast(seed, tf.uint64), dtype=tf.uint64)
    return draw(shape=shape, key=mixed[:1], counter=mixed * [0, 1], dtype=tf.int32)


# Longer sums than the first are made of sums of at most the second (benchmarks/attention/NOTES.md).
_LONGEST_SUM, _ROWS = 512, 384


def whole_attention_by_xla(
    q, k, v, blocked=None, bias=None, *, causal=False, dropout=None, weights_wanted=True
):
    """`whole_attention` as two programs that XLA compiles, one forward and one backward."""
    # Three things make them fast on a CPU: the softmax divides at the end, T x H times instead of
    # T x S times; the backward pass starts from exp(score - maximum) and the sums of its rows, the
    # only tensors kept, so it has no second softmax; and no product has a large transposed left
    # side, see `_product_over_rows`.
    rate, seed = (0.0, None) if dropout is None else dropout
    if isinstance(bias, ByDistance):
        if bias.tables:
            options = {"causal": causal, "dropout": dropout, "weights_wanted": weights_wanted}
            return _with_tables(q, k, v, blocked, bias, **options)
        bias = bias.tensor(q, shape_of(k)[-2])  # (..., T, S)
    options = {"blocked": blocked, "seed": seed, "causal": causal, "rate": rate}

    @tf.custom_gradient
    def attend(*inputs):
        *outputs, powers, sums = _forward(*inputs, **options, weights_wanted=weights_wanted)

        def gradient(*upstream):
            return _backward(outputs[0], powers, sums, upstream, *inputs, **options)

        # The gradient needs the output before it is rounded.
        return [tf.cast(x, q.dtype) for x in outputs], gradient

    output, *weights = attend(*(x for x in (q, k, v, bias) if x is not None))
    return output, weights[0] if weights_wanted else None


# Tables of keys and values have no handwritten gradient.
_with_tables = tf.function(whole_attention, jit_compile=True, autograph=False)


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _forward(q, k, v, bias=None, *, blocked, seed, causal, rate, weights_wanted):
    """Output, weights if wanted, exp(score - maximum) (R, T, S), and their sums (R, T, 1)."""
    case = _Case(q, k, v, bias, blocked, seed, causal, rate)
    scores, steepness = product(case.q, case.k, transpose_b=True), case.scale  # (R, T, S)
    if bias is not None or case.blocked is not None:
        scores, steepness = scores * case.scale, tf.ones((), case.wide)
    if bias is not None:
        scores += case.full(tf.cast(bias, case.wide))
    if case.blocked is not None:
        scores = tf.where(case.blocked, tf.cast(BLOCKED_SCORE, case.wide), scores)
    highest = tf.reduce_max(scores, -1, keepdims=True)  # (R, T, 1)
    # Scaling the difference, not the scores, saves a pass over them.
    powers = tf.exp((scores - highest) * steepness)
    sums = tf.reduce_sum(powers, -1, keepdims=True)
    powers = tf.cast(powers, case.v.dtype)  # the product would round them; half the memory
    output = product(case.dropped(powers), case.v) / sums  # (R, T, H_v)
    results = [tf.reshape(output, tf.concat([case.shape[:-1], tf.shape(v)[-1:]], 0))]
    if weights_wanted:
        results.append(tf.reshape(tf.cast(powers, case.wide) / sums, case.shape))
    return *results, powers, sums


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _backward(output, powers, sums, upstream, q, k, v, bias=None, **options):
    """The gradients of q, k, v and, if there is one, bias."""
    case = _Case(q, k, v, bias, **options)
    up, *up_weights = (merge_leading(tf.cast(x, case.v.dtype)) for x in upstream)
    slope = case.dropped(product(up, case.v, transpose_b=True))  # of the weights, (R, T, S)
    mean = tf.reduce_sum(tf.cast(up, case.wide) * merge_leading(output), -1, keepdims=True)
    wide_powers = tf.cast(powers, case.wide)
    for more in up_weights:
        more = tf.cast(more, case.wide)
        slope += more
        mean += tf.reduce_sum(more * wide_powers, -1, keepdims=True) / sums
    dscores = wide_powers * ((slope - mean) / sums)
    if case.blocked is not None:  # a row without a free key has nonzero weights
        dscores = tf.where(case.blocked, tf.zeros((), case.wide), dscores)
    dq = product(dscores, case.k) * case.scale
    dk = _product_over_rows(dscores, case.q) * case.scale
    up = tf.cast(tf.cast(up, case.wide) / sums, up.dtype)
    dv = _product_over_rows(case.dropped(powers), up)
    gradients = [
        tf.cast(tf.reshape(g, tf.shape(x)), x.dtype)
        for g, x in zip((dq, dk, dv), (q, k, v), strict=True)
    ]
    return gradients if bias is None else [*gradients, case.of_bias(dscores)]


class _Case:
    """The arguments as both passes use them, with all leading axes merged into one."""

    def __init__(self, q, k, v, bias, blocked, seed, causal, rate):
        self.wide = wide_dtype(q)
        self.shape = tf.concat([tf.shape(q)[:-1], tf.shape(k)[-2:-1]], 0)  # of the scores
        self.scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], self.wide))
        self.q, self.k, self.v = (merge_leading(as_factor(x, compiled=True)) for x in (q, k, v))
        blocked = blocked_or_future(blocked, causal, q, k)
        self.blocked = None if blocked is None else self.full(blocked)
        self.factors = None
        if seed is not None:
            self.factors = self.full(dropout_factors(self.shape, self.wide, rate, seed))
        self.bias = bias

    def full(self, x):
        return merge_leading(tf.broadcast_to(x, self.shape))  # (R, T, S); XLA makes no copy

    def dropped(self, x):
        return x if self.factors is None else tf.cast(x, self.wide) * self.factors

    def of_bias(self, dscores):
        shape = tf.shape(self.bias)
        axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=shape, s1=self.shape)
        total = tf.reduce_sum(tf.reshape(dscores, self.shape), axes)
        return tf.cast(tf.reshape(total, shape), self.bias.dtype)


def _product_over_rows(x, y):
    """x^T y, (R, S, H), of x (R, T, S) and y (R, T, H): the transpose of y^T x."""

    # On a CPU XLA multiplies slowly if a large left side is transposed, so the smaller matrix is
    # transposed and copied first. The barriers keep XLA from turning both back into one product.
    # That product is slow again if the sum is long, so it is made of shorter ones.
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
