"""Attention that computes all scores at once.

Axes: T target (query) length, S source (key) length, H head width. Leading axes (batch, heads)
are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.product import as_factor, product
from tf_transformer.functional.dropout import dropout_factors

# Value of a blocked score. In float32, exp(-1e9 - max) is exactly 0 next to any free key, and a row
# with only blocked keys has equal scores: a uniform average, never NaN.
BLOCKED_SCORE = -1e9


def whole_attention(
    q,
    k,
    v,
    blocked=None,
    bias=None,
    *,
    causal=False,
    dropout=None,
    weights_wanted=True,
):
    """softmax(Q K^T / sqrt(d_k) + bias) V, computed directly.

    "Attention Is All You Need", equation 1, section 3.2.1.
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
    dtype = tf.float64 if q.dtype == tf.float64 else tf.float32
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
