"""Attention between complex queries and keys.

Axes: T target (query) length, S source (key) length, H head width; the leading axes (batch, heads)
are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.blocks import (
    Grid,
    OfHeads,
    OfPairs,
    OfQueries,
    recompute,
    shape_of,
)
from tf_transformer.functional.attention.masks import blocked_scores
from tf_transformer.functional.attention.plan import choose_plan
from tf_transformer.functional.attention.whole import BLOCKED_SCORE
from tf_transformer.functional.complex_numbers import to_complex, to_real
from tf_transformer.functional.tracing import in_xla_program


def complex_attention(q, k, v, mask=None, *, return_attention_weights=True, plan="auto"):
    """Average complex values, weighted by the modulus of the complex product of query and key.

    softmax(|Q K^H| / sqrt(H)) V, Wang et al. 2020, "Encoding Word Order in Complex Embeddings",
    equations 13 and 14. K^H is the conjugate transpose, so the score does not change if query and
    key turn by the same angle. The weights are real.
    """
    q, k, v = (tf.convert_to_tensor(tensor) for tensor in (q, k, v))
    _check_inputs(q, k, v)
    lead = tf.broadcast_static_shape(q.shape[:-2], k.shape[:-2])
    blocked = blocked_scores(mask, lead.concatenate((q.shape[-2], k.shape[-2])))
    plan = choose_plan(plan, q.shape, k.shape, return_attention_weights, in_xla_program())
    parts = [to_real(x) for x in (q, k, v)]
    if plan.name == "whole":
        output, weights = _attend(*parts, blocked)
        return to_complex(output), weights if return_attention_weights else None
    grid = Grid(parts[0], shape_of(k)[-2], plan.most_scores)
    names = {"q": OfQueries, "k": OfHeads, "v": OfHeads}
    inputs = {name: kind(grid, x) for (name, kind), x in zip(names.items(), parts, strict=True)}
    constants = {} if blocked is None else {"blocked": OfPairs(grid, blocked)}

    def attend(i, j, shared, q, k, v, blocked=None):
        return _attend(q, k, v, blocked)[0]

    output = recompute(attend, grid, inputs, constants, width=parts[2].shape[-1])
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
        raise ArgumentError(
            "q, k, v",
            "complex tensors of one dtype",
            f"{q.dtype.name}, {k.dtype.name} and {v.dtype.name}",
            "Cast them: tf.cast(q, tf.complex64).",
        )
    if None in (q.shape.rank, k.shape.rank, v.shape.rank) or not (
        q.shape.rank == k.shape.rank == v.shape.rank >= 2
        and q.shape[:-2].is_compatible_with(k.shape[:-2])
        and q.shape[-1:].is_compatible_with(k.shape[-1:])
        and k.shape[:-1].is_compatible_with(v.shape[:-1])
    ):
        raise ArgumentError(
            "q, k, v",
            "(..., T, H), (..., S, H) and (..., S, H_v) with the same leading axes",
            f"{q.shape}, {k.shape} and {v.shape}",
        )
