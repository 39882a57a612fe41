"""Multiplicative attention: scores are dot products.

Axes: T target (query) length, S source (key) length, H width. Leading axes (batch, heads) are
"...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.scaled_dot_product import scaled_dot_product_attention
from tf_transformer.functional.scores.projection import wide_dtype


def multiplicative_attention(q, k, v, mask=None, **options):
    """Attention with the score q . k, the product of query and key without a scale.

    softmax(Q K^T) V: the score "dot" of Luong et al. 2015, "Effective Approaches to Attention-based
    Neural Machine Translation", section 3.1. For vectors with N(0, 1) entries its standard
    deviation is sqrt(H), so wide vectors give weights near 0 and 1 and small gradients;
    `scaled_dot_product_attention` divides by sqrt(H).

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        **options: `bias`, `causal`, `dropout`, `return_attention_weights`, `plan` and `jit`, see
            `scaled_dot_product_attention`.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype, or None in
        place of weights that are not wanted. Scores and softmax are float32 (float64 for float64).

    Raises:
        ValueError: See `scaled_dot_product_attention`.

    Example:
        >>> q = tf.constant([[0.0, 1.0]])
        >>> k = v = tf.constant([[4.0, 0.0], [0.0, 4.0]])
        >>> print(multiplicative_attention(q, k, v)[1].numpy().round(3))
        [[0.018 0.982]]
    """
    q, k = (tf.convert_to_tensor(x) for x in (q, k))
    if not (q.dtype.is_floating and k.dtype.is_floating):
        return scaled_dot_product_attention(q, k, v, mask, **options)  # which says what is wrong
    # Both in float32: q sqrt(H) can overflow float16 and is rounded in bfloat16.
    dtype, wide = q.dtype, wide_dtype(q)
    q, k = tf.cast(q, wide), tf.cast(k, wide)
    scale = tf.sqrt(tf.cast(tf.shape(q)[-1], wide))  # the core divides by it
    results = scaled_dot_product_attention(q * scale, k, v, mask, **options)
    return tuple(x if x is None else tf.cast(x, dtype) for x in results)
