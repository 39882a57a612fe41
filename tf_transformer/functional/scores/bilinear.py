"""Bilinear attention: scores are products of queries and keys with a learned matrix between them.

Axes: T target (query) length, S source (key) length, D width of queries, D_k width of keys. Leading
axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.check_inputs import check_inputs
from tf_transformer.functional.scores.multiplicative import multiplicative_attention
from tf_transformer.functional.scores.projection import project


def bilinear_attention(q, k, v, kernel, mask=None, **options):
    """Attention with the score q^T W k, which lets queries and keys have different widths.

    softmax(Q W K^T) V: the score "general" of Luong et al. 2015, "Effective Approaches to
    Attention-based Neural Machine Translation", section 3.1. It equals `multiplicative_attention`
    of Q W and K.

    Args:
        q: float tensor (..., T, D).
        k: float tensor (..., S, D_k).
        v: float tensor (..., S, H_v).
        kernel: float tensor (D, D_k), W.
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        **options: `bias`, `causal`, `dropout`, `return_attention_weights`, `plan` and `jit`, see
            `scaled_dot_product_attention`.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype, or None in
        place of weights that are not wanted. The projection, scores and softmax are float32
        (float64 for float64).

    Raises:
        ValueError: If the kernel does not have shape (D, D_k); see also
            `scaled_dot_product_attention`.

    Example:
        >>> q, k = tf.constant([[1.0]]), tf.constant([[4.0, 0.0], [0.0, 4.0]])
        >>> print(bilinear_attention(q, k, k, tf.constant([[0.0, 1.0]]))[1].numpy().round(3))
        [[0.018 0.982]]
    """
    q, k, v, kernel = (tf.convert_to_tensor(x) for x in (q, k, v, kernel))
    check_inputs(q, k, v)
    if kernel.shape.rank == 2 and not kernel.shape[1:].is_compatible_with(k.shape[-1:]):
        raise ArgumentError(
            "kernel",
            f"shape ({q.shape[-1]}, {k.shape[-1]}), (width of q, width of k)",
            tuple(kernel.shape),
        )
    results = multiplicative_attention(project(q, kernel, "kernel"), k, v, mask, **options)
    return tuple(x if x is None else tf.cast(x, q.dtype) for x in results)
