"""Attention in which groups of query heads share keys and values.

Axes: B batch, N query heads, G heads of keys and values, T queries, S keys, W any width.
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.recording import record
from tf_transformer.functional.attention.scaled_dot_product import scaled_dot_product_attention


def grouped_attention(
    q, k, v, times, mask=None, *, bias=None, causal=False, window=None, **options
):
    """Attention with fewer heads of keys and values than of queries.

    Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
    Checkpoints", section 2.2.
    """
    output, weights = _grouped(q, k, v, times, mask, bias, causal, window, **options)
    record(q, k, weights)
    return output, weights


def _grouped(q, k, v, times, mask, bias, causal, window, **options):
    options |= {"bias": bias, "causal": causal, "window": window}
    if times == 1:
        return scaled_dot_product_attention(q, k, v, mask, **options)
    if bias is None and window is None and not causal and _same_for_all_queries(mask):
        output, weights = scaled_dot_product_attention(fold_heads(q, times), k, v, mask, **options)
        return unfold_heads(output, times), weights if weights is None else unfold_heads(
            weights, times
        )
    k, v = (tf.repeat(x, times, axis=1) for x in (k, v))
    return scaled_dot_product_attention(q, k, v, mask, **options)


def _same_for_all_queries(mask):
    if isinstance(mask, tuple):
        return all(map(_same_for_all_queries, mask))
    if mask is None or (mask.dtype == tf.bool and mask.shape.rank == 2):
        return True
    return mask.shape.rank in (3, 4) and set(mask.shape[1:-1]) == {1}


def fold_heads(x, times):
    """Put the rows of the heads that share keys one after another, so that keys are read once."""
    *lead, heads, rows, width = shape_of(x)
    return tf.reshape(x, (*lead, heads // times, times * rows, width))


def unfold_heads(x, times):
    """The inverse of `fold_heads`."""
    *lead, heads, rows, width = shape_of(x)
    return tf.reshape(x, (*lead, heads * times, rows // times, width))
