"""Additive attention: scores are computed by a small network.

Axes: T target (query) length, S source (key) length, D width of queries, D_k width of keys, U units
of the network. Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.check_inputs import check_inputs
from tf_transformer.functional.attention.leading_axes import merge_leading
from tf_transformer.functional.attention.masks import blocked_scores
from tf_transformer.functional.scores.additive_tiles import AdditiveTiles
from tf_transformer.functional.scores.projection import project, wide_dtype


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
    Learning to Align and Translate", section 3.1 and appendix A.1.2. The U numbers of each pair of
    a query and a key are computed for one tile of pairs at a time, forward and backward.

    Args:
        q: float tensor (..., T, D).
        k: float tensor (..., S, D_k).
        v: float tensor (..., S, H_v).
        query_kernel: float tensor (D, U), W.
        key_kernel: float tensor (D_k, U), U in the equation.
        score_vector: float tensor (U,), w.
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        causal: bool, True also blocks key s for query t if s > t.
        return_attention_weights: False returns None in place of the weights; then no tensor has
            T x S elements.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype. The
        network, mask and softmax are float32 (float64 for float64).

    Raises:
        ValueError: If ranks, shapes or dtypes do not match, a mask does not broadcast, or it has
            an integer dtype.

    Example:
        >>> q, k = tf.constant([[0.0]]), tf.constant([[0.0], [9.0]])
        >>> one = tf.ones((1, 1))
        >>> output, weights = additive_attention(q, k, k, one, one, tf.constant([3.0]))
        >>> print(weights.numpy().round(3))
        [[0.047 0.953]]
    """
    q, k, v, vector = (tf.convert_to_tensor(x) for x in (q, k, v, score_vector))
    check_inputs(q, k, v)
    queries = project(q, query_kernel, "query_kernel")  # (..., T, U)
    keys = project(k, key_kernel, "key_kernel")  # (..., S, U)
    if not queries.shape[-1:] == keys.shape[-1:] == vector.shape:
        raise ArgumentError(
            "query_kernel, key_kernel, score_vector",
            "shapes (any, U), (any, U) and (U,)",
            f"widths {queries.shape[-1]} and {keys.shape[-1]}, and {vector.shape}",
        )
    scores_shape = q.shape[:-1].concatenate(k.shape[-2:-1])
    blocked = blocked_scores(mask, scores_shape)
    lead, wide = tf.shape(q)[:-2], wide_dtype(q)

    @tf.custom_gradient
    def attend(*inputs):
        tiles = AdditiveTiles(*inputs, lead, blocked, causal)
        results, sums = tiles.forward(return_attention_weights)
        return results, lambda *upstream: tiles.backward(results, sums, upstream)

    inputs = (merge_leading(tf.cast(x, wide)) for x in (queries, keys, v))
    results = attend(*inputs, tf.cast(vector, wide))
    shapes = (q.shape[:-1].concatenate(v.shape[-1:]), scores_shape)
    output, *weights = (
        _split_leading(tf.cast(x, q.dtype), lead, shape)
        for x, shape in zip(results, shapes, strict=False)
    )
    return output, weights[0] if return_attention_weights else None


def _split_leading(x, lead, shape):
    """The inverse of `merge_leading`."""
    x = tf.reshape(x, tf.concat([lead, tf.shape(x)[1:]], 0))
    x.set_shape(shape)
    return x
