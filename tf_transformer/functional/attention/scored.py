"""Attention with scores other than the scaled dot product: multiplicative, bilinear, additive.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H width, D width
of queries, D_k width of keys, F width of a projection, U units of the network; r and t are the
sizes of a block of heads and of queries. Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.blocks import (
    Grid,
    of_all,
    of_heads,
    of_pairs,
    of_queries,
    recompute,
)
from tf_transformer.functional.attention.masks import blocked_scores
from tf_transformer.functional.attention.scaled_dot_product import (
    check_inputs,
    scaled_dot_product_attention,
)
from tf_transformer.functional.attention.whole import BLOCKED_SCORE
from tf_transformer.functional.tensors import over_rows, shape_of, wide_dtype

__all__ = ["additive_attention", "bilinear_attention", "multiplicative_attention"]


def project(x, kernel, name):
    """x W, in the dtype of the scores."""
    dtype, kernel = wide_dtype(x), tf.convert_to_tensor(kernel)
    if kernel.shape.rank != 2 or not x.shape[-1:].is_compatible_with(kernel.shape[:1]):
        shape = f"shape ({x.shape[-1]}, any), a row for each column of the input {tuple(x.shape)}"
        raise ArgumentError(name, shape, kernel.shape)
    kernel = tf.cast(kernel, dtype)
    return over_rows(lambda rows: tf.matmul(rows, kernel), tf.cast(x, dtype))


def multiplicative_attention(q, k, v, mask=None, **options):
    """Attention with the score q . k, the product of query and key without a scale.

    softmax(Q K^T) V: the score "dot" of Luong et al. 2015, "Effective Approaches to Attention-based
    Neural Machine Translation", section 3.1. For N(0, 1) entries its standard deviation is sqrt(H).

    Args:
        q, k, v: float tensors (..., T, H), (..., S, H) and (..., S, H_v).
        mask, **options: see `scaled_dot_product_attention`, also for what is returned and raised.

    Example:
        >>> q, k = tf.constant([[0.0, 1.0]]), tf.constant([[4.0, 0.0], [0.0, 4.0]])
        >>> print(multiplicative_attention(q, k, k)[1].numpy().round(3))
        [[0.018 0.982]]
    """
    q, k, v = (tf.convert_to_tensor(x) for x in (q, k, v))
    check_inputs(q, k, v)
    # In float32: q sqrt(H) can overflow float16 and is rounded in bfloat16.
    dtype, wide = q.dtype, wide_dtype(q)
    q, k, v = (tf.cast(x, wide) for x in (q, k, v))
    scale = tf.sqrt(tf.cast(tf.shape(q)[-1], wide))  # the core divides by it
    results = scaled_dot_product_attention(q * scale, k, v, mask, **options)
    return tuple(x if x is None else tf.cast(x, dtype) for x in results)


def bilinear_attention(q, k, v, kernel, mask=None, **options):
    """Attention with the score q^T W k, which lets queries and keys have different widths.

    softmax(Q W K^T) V: the score "general" of Luong et al. 2015, section 3.1. It equals
    `multiplicative_attention` of Q W, in float32 or wider, and K.

    Args:
        q, k, v: float tensors (..., T, D), (..., S, D_k) and (..., S, H_v).
        kernel: float tensor (D, D_k), W.
        mask, **options: see `scaled_dot_product_attention`, also for what is returned.

    Raises:
        ValueError: If the kernel is not (D, D_k); see also `scaled_dot_product_attention`.

    Example:
        >>> q, k = tf.constant([[1.0]]), tf.constant([[4.0, 0.0], [0.0, 4.0]])
        >>> print(bilinear_attention(q, k, k, tf.constant([[0.0, 1.0]]))[1].numpy().round(3))
        [[0.018 0.982]]
    """
    q, k, v, kernel = (tf.convert_to_tensor(x) for x in (q, k, v, kernel))
    check_inputs(q, k, v)
    if kernel.shape.rank == 2 and not kernel.shape[1:].is_compatible_with(k.shape[-1:]):
        expected = f"shape ({q.shape[-1]}, {k.shape[-1]}), (width of q, width of k)"
        raise ArgumentError("kernel", expected, tuple(kernel.shape))
    k, v = (tf.cast(x, wide_dtype(q)) for x in (k, v))  # as `project` does
    results = multiplicative_attention(project(q, kernel, "kernel"), k, v, mask, **options)
    return tuple(x if x is None else tf.cast(x, q.dtype) for x in results)


# Elements of a block (r, t, S, U) of more than one query, 2 MiB in float32: the two in flight fit
# into the caches of two cores.
_MOST_ELEMENTS = 2**19


@tf.custom_gradient
def _additive_scores(q, k, vector):
    """w . tanh(q + k) for each pair, (r, t, S)."""
    hidden = tf.tanh(tf.expand_dims(q, 2) + tf.expand_dims(k, 1))  # (r, t, S, U)
    flat = tf.reshape(hidden, (-1, vector.shape[0]))
    scores = tf.reshape(tf.matmul(flat, tf.expand_dims(vector, 1)), shape_of(hidden)[:-1])

    def gradient(dscores):
        # The vector multiplies the sums, not each pair.
        slope = tf.expand_dims(dscores, -1) * (1.0 - tf.square(hidden))
        dvector = tf.matmul(tf.reshape(dscores, (1, -1)), flat)[0]
        return tf.reduce_sum(slope, 2) * vector, tf.reduce_sum(slope, 1) * vector, dvector

    return scores, gradient


def additive_attention(
    q,
    k,
    v,
    query_kernel,
    key_kernel,
    score_vector,
    mask=None,
    *,
    causal=False,
    return_attention_weights=True,
):
    """Attention with the score of a network with one hidden layer.

    score(q, k) = w . tanh(q W + k U), Bahdanau et al. 2015, "Neural Machine Translation by Jointly
    Learning to Align and Translate", appendix A.1.2, in blocks of queries, forward and backward.

    Args:
        q, k, v: float tensors (..., T, D), (..., S, D_k) and (..., S, H_v).
        query_kernel, key_kernel: float tensors (D, U), W, and (D_k, U), U in the equation.
        score_vector: float tensor (U,), w.
        mask, causal: see `scaled_dot_product_attention`, also for what is returned.
        return_attention_weights: False returns None in place of the weights; then no tensor has
            T x S elements.

    Raises:
        ValueError: If ranks, shapes or dtypes do not match, or a mask does not broadcast or has an
            integer dtype.

    Example:
        >>> q, k, one = tf.constant([[0.0]]), tf.constant([[0.0], [9.0]]), tf.ones((1, 1))
        >>> print(additive_attention(q, k, k, one, one, tf.constant([3.0]))[1].numpy().round(3))
        [[0.047 0.953]]
    """
    q, k, v, vector = (tf.convert_to_tensor(x) for x in (q, k, v, score_vector))
    check_inputs(q, k, v)
    queries = project(q, query_kernel, "query_kernel")  # (..., T, U)
    keys = project(k, key_kernel, "key_kernel")  # (..., S, U)
    if not queries.shape[-1:] == keys.shape[-1:] == vector.shape:
        names = "query_kernel, key_kernel, score_vector"
        got = f"widths {queries.shape[-1]} and {keys.shape[-1]}, and {vector.shape}"
        raise ArgumentError(names, "shapes (any, U), (any, U) and (U,)", got)
    scores_shape = q.shape[:-1].concatenate(k.shape[-2:-1])
    blocked = blocked_scores(mask, scores_shape)
    units, source = vector.shape[0], shape_of(k)[-2]
    grid = Grid(q, source, max(1, _MOST_ELEMENTS // units))
    v = tf.cast(v, grid.dtype)
    inputs = {"q": of_queries(grid, queries), "k": of_heads(grid, keys), "v": of_heads(grid, v)}
    inputs["vector"] = of_all(grid, tf.cast(vector, grid.dtype))
    constants = {} if blocked is None else {"blocked": of_pairs(grid, blocked)}

    def attend(i, j, future, q, k, v, vector, blocked=None):
        scores = _additive_scores(q, k, vector)
        if future is not None:
            blocked = future if blocked is None else blocked | future
        if blocked is not None:
            scores = tf.where(blocked, tf.cast(BLOCKED_SCORE, grid.dtype), scores)
        weights = tf.nn.softmax(scores)
        output = tf.matmul(weights, v)
        return tf.concat([output, weights], -1) if return_attention_weights else output

    width = v.shape[-1]
    together = width + source if return_attention_weights else width
    future = grid.future if causal else lambda j: None
    results = recompute(attend, grid, inputs, constants, width=together, per_queries=future)
    results = tf.cast(results, q.dtype)
    if not return_attention_weights:
        return results, None
    output, weights = tf.split(results, [width, source], -1)
    output.set_shape((*q.shape[:-1], width))
    weights.set_shape(scores_shape)
    return output, weights
