"""Attention between complex queries and keys.

Axes: T target (query) length, S source (key) length, H head width; the leading axes (batch, heads)
are "...".
"""

import math

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.blocks import Blocks, shape_of
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
    *others, source = [*shape_of(q)[:-2], shape_of(k)[-2]]
    at_once = plan.most_scores // (math.prod(others) * source)
    rows = max(1, at_once) if isinstance(at_once, int) else tf.maximum(1, at_once)
    return to_complex(_attend_by_rows(*parts, blocked, rows)), None


def _attend(q, k, v, blocked):
    """Output (..., T, 2 H_v) and weights of queries (..., T, 2 H), see `to_real`."""
    real, imag = tf.split(k, 2, axis=-1)
    turned = tf.concat([-imag, real], axis=-1)  # i k, whose real product with q is Im(q k^H)
    products = (tf.matmul(q, x, transpose_b=True) for x in (k, turned))
    # The gradient of tf.abs is 0 where the product is 0; that of a square root is infinite.
    scores = tf.abs(tf.complex(*products))  # (..., T, S)
    scores *= tf.math.rsqrt(tf.cast(tf.shape(real)[-1], q.dtype))
    if blocked is not None:
        scores = tf.where(blocked, tf.cast(BLOCKED_SCORE, scores.dtype), scores)
    weights = tf.nn.softmax(scores)
    return tf.matmul(weights, v), weights


def _attend_by_rows(q, k, v, blocked, rows):
    """The output of `_attend`, from `rows` queries at a time, forward and backward."""
    queries = Blocks.of(q, -2, rows)

    def output_of(i, q, k, v):
        return _attend(q, k, v, None if blocked is None else queries.cut(blocked, -2, i))[0]

    def blocks(width):
        static = queries.size if isinstance(queries.size, int) else None
        shape = (*q.shape[:-2], static, width)
        return tf.TensorArray(q.dtype, queries.count, element_shape=shape)

    @tf.custom_gradient
    def attend(q, k, v):
        def forward(i, outputs):
            return i + 1, outputs.write(i, output_of(i, queries.cut(q, -2, i), k, v))

        def gradient(upstream):
            def backward(i, dq, dk, dv):
                seen = tf.expand_dims(queries.seen(i), 1)  # counted by the previous block
                up = tf.where(seen, tf.zeros((), q.dtype), queries.cut(upstream, -2, i))
                inputs = queries.cut(q, -2, i), tf.identity(k), tf.identity(v)
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    output = output_of(i, *inputs)
                dq_rows, dk_more, dv_more = tape.gradient(output, inputs, up)
                return i + 1, dq.write(i, dq_rows), dk + dk_more, dv + dv_more

            state = blocks(q.shape[-1]), tf.zeros_like(k), tf.zeros_like(v)
            dq, dk, dv = _loop(queries.count, backward, state)
            return queries.join(dq.stack()), dk, dv

        (outputs,) = _loop(queries.count, forward, (blocks(v.shape[-1]),))
        return queries.join(outputs.stack()), gradient

    output = attend(q, k, v)
    output.set_shape((*q.shape[:-1], v.shape[-1]))
    return output


def _loop(count, body, state):
    """Run `body(i, *state)`, one block at a time."""
    start = tf.constant(0), *state
    return tf.while_loop(lambda i, *_: i < count, body, start, parallel_iterations=1)[1:]


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
