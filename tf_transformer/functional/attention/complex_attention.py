"""Complex tensors as real ones of twice the width, real parts first, and attention between them.

Axes: D width of the input, F width of the output, T position or target (query) length, S source
(key) length, H head width; the leading axes (batch, heads) are "...".

Products use real tensors, which takes about half as long on a CPU: oneDNN has no complex kernels.
"""

import math

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.blocks import (
    Grid,
    of_heads,
    of_pairs,
    of_queries,
    recompute,
)
from tf_transformer.functional.attention.masks import blocked_scores
from tf_transformer.functional.attention.plan import choose_plan
from tf_transformer.functional.attention.whole import BLOCKED_SCORE
from tf_transformer.functional.tensors import in_xla_program, over_rows, shape_of


def to_real(z):
    """Concatenate real and imaginary parts."""
    return tf.concat([tf.math.real(z), tf.math.imag(z)], axis=-1)


def to_complex(x):
    """Undo `to_real`."""
    return tf.complex(*tf.split(x, 2, axis=-1))


def complex_linear(x, kernel, bias):
    """(x + i y)(A + i B) + c + i d = (x A - y B + c) + i (x B + y A + d), as pairs of tensors."""
    a, b = kernel
    blocks = tf.concat([tf.concat([a, b], 1), tf.concat([-b, a], 1)], 0)  # (2 D, 2 F)
    biases = tf.concat(bias, 0)  # (2 F,)
    return over_rows(lambda rows: tf.matmul(rows, blocks) + biases, x)  # (..., 2 F)


def complex_wave(amplitude, frequency, phase, position):
    """r exp(i (w pos + theta)), a wave over positions, Wang et al. 2020, equation 5."""
    # In float32, w pos without this reduction would be off by 1e-5 after some 200 positions.
    turned = tf.cast(frequency, tf.float64) * tf.cast(position, tf.float64)
    turned -= tf.stop_gradient(2 * math.pi * tf.round(turned / (2 * math.pi)))
    angle = tf.cast(turned, phase.dtype) + phase
    return tf.complex(amplitude * tf.cos(angle), amplitude * tf.sin(angle))


def complex_attention(q, k, v, mask=None, *, return_attention_weights=True, plan="auto"):
    """softmax(|Q K^H| / sqrt(H)) V, Wang et al. 2020, equations 13 and 14, and its real weights."""
    q, k, v = (tf.convert_to_tensor(tensor) for tensor in (q, k, v))
    _check_inputs(q, k, v)
    lead = tf.broadcast_static_shape(q.shape[:-2], k.shape[:-2])
    blocked = blocked_scores(mask, lead.concatenate((q.shape[-2], k.shape[-2])))
    options = {"compiled": in_xla_program(), "not_fused": "complex numbers"}
    plan = choose_plan(plan, q.shape, k.shape, return_attention_weights, **options)
    q, k, v = (to_real(x) for x in (q, k, v))
    if plan.name == "whole":
        output, weights = _attend(q, k, v, blocked)
        return to_complex(output), weights if return_attention_weights else None
    grid = Grid(q, shape_of(k)[-2], plan.most_scores)
    inputs = {"q": of_queries(grid, q), "k": of_heads(grid, k), "v": of_heads(grid, v)}
    constants = {} if blocked is None else {"blocked": of_pairs(grid, blocked)}

    def attend(i, j, once, q, k, v, blocked=None):
        return _attend(q, k, v, blocked)[0]

    output = recompute(attend, grid, inputs, constants, width=v.shape[-1])
    return to_complex(output), None


def _attend(q, k, v, blocked):
    """Output (..., T, 2 H_v) and weights of queries (..., T, 2 H), see `to_real`."""
    real, imag = tf.split(k, 2, axis=-1)
    turned = tf.concat([-imag, real], axis=-1)  # i k, whose real product with q is Im(q k^H)
    products = (tf.matmul(q, x, transpose_b=True) for x in (k, turned))
    # Where the product is 0, the gradient of tf.abs is 0; a square root's would be infinite.
    scores = tf.abs(tf.complex(*products))  # (..., T, S)
    scores *= tf.math.rsqrt(tf.cast(tf.shape(real)[-1], q.dtype))
    if blocked is not None:
        scores = tf.where(blocked, tf.cast(BLOCKED_SCORE, scores.dtype), scores)
    weights = tf.nn.softmax(scores)
    return tf.matmul(weights, v), weights


def _check_inputs(q, k, v):
    if not (q.dtype.is_complex and q.dtype == k.dtype == v.dtype):
        got = f"{q.dtype.name}, {k.dtype.name} and {v.dtype.name}"
        remedy = "Cast them: tf.cast(q, tf.complex64)."
        raise ArgumentError("q, k, v", "complex tensors of one dtype", got, remedy)
    q, k, v = q.shape, k.shape, v.shape
    if None in (q.rank, k.rank, v.rank) or not (
        q.rank == k.rank == v.rank >= 2
        and q[:-2].is_compatible_with(k[:-2])
        and q[-1:].is_compatible_with(k[-1:])
        and k[:-1].is_compatible_with(v[:-1])
    ):
        expected = "(..., T, H), (..., S, H) and (..., S, H_v) with the same leading axes"
        raise ArgumentError("q, k, v", expected, f"{q}, {k} and {v}")
