"""The attention core: softmax(Q K^T / sqrt(d_k)) V, compiled by XLA or as a plain graph.

Axes: B batch, N heads, T target (query) length, S source (key) length, H head width.
"""

import tensorflow as tf

from tf_transformer.functional.masks import blocked_scores

# What a blocked score is set to. In float32, exp(-1e9 - max) is exactly 0 beside any free key,
# and a row with nothing but blocked keys has equal scores: a uniform average, never NaN.
BLOCKED_SCORE = -1e9


def scaled_dot_product_attention(q, k, v, mask=None, *, return_attention_weights=True, jit="auto"):
    """Average the values, each weighted by how well its key matches the query.

    softmax(Q K^T / sqrt(d_k)) V, "Attention Is All You Need", equation 1, section 3.2.1.

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.masks.blocked_scores`.
        return_attention_weights: False returns None in place of the weights.
        jit: True compiles the core with XLA, False runs it as a plain TensorFlow graph, "auto"
            chooses by device and size (see `use_xla`).

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both of q's dtype. Scores,
        mask and softmax are computed in float32 (float64 for float64 inputs).

    Raises:
        ValueError: ranks, widths or dtypes that do not fit, a mask that does not broadcast, an
            integer mask, an unknown `jit`.

    Differs from the notes: where they add `mask * -1e9` to a score, the score is replaced by
    -1e9. The two agree to the last bit as long as |score| < 32, where adding leaves exactly
    -1e9 in float32; beyond that only replacing keeps a blocked key from showing through.

    Example:
        >>> q = tf.constant([[0.0, 10.0]])
        >>> k = v = tf.constant([[10.0, 0.0], [0.0, 10.0]])
        >>> output, weights = scaled_dot_product_attention(q, k, v)
        >>> weights.numpy().round(3).tolist()
        [[0.0, 1.0]]
    """
    q, k, v = (tf.convert_to_tensor(tensor) for tensor in (q, k, v))
    _check_inputs(q, k, v)
    batch = tf.broadcast_static_shape(q.shape[:-2], k.shape[:-2])
    blocked = blocked_scores(mask, batch.concatenate((q.shape[-2], k.shape[-2])))
    core = _compiled_attention if use_xla(jit, q.shape, k.shape) else _attention
    output, weights = core(q, k, v, blocked)
    return output, weights if return_attention_weights else None


def _attention(q, k, v, blocked):
    accumulate = tf.float64 if q.dtype == tf.float64 else tf.float32
    queries, keys, values = (tf.cast(tensor, accumulate) for tensor in (q, k, v))
    scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], accumulate))
    # Scaling Q costs T x H products where scaling the scores costs T x S.
    scores = tf.matmul(queries * scale, keys, transpose_b=True)  # (..., T, S)
    if blocked is not None:
        scores = tf.where(blocked, tf.cast(BLOCKED_SCORE, accumulate), scores)
    weights = tf.nn.softmax(scores)  # (..., T, S)
    output = tf.matmul(weights, values)  # (..., T, H_v)
    return tf.cast(output, q.dtype), tf.cast(weights, q.dtype)


_compiled_attention = tf.function(_attention, jit_compile=True, autograph=False)


def use_xla(jit, q_shape, k_shape):
    """Decide whether one attention call is compiled with XLA.

    Args:
        jit: True, False or "auto".
        q_shape: static shape of the queries, (..., T, H).
        k_shape: static shape of the keys, (..., S, H).

    Returns:
        bool.

    Raises:
        ValueError: `jit` is none of the three.

    Example:
        >>> use_xla(True, tf.TensorShape((1, 2, 3, 4)), tf.TensorShape((1, 2, 5, 4)))
        True
    """
    if jit not in (True, False, "auto"):
        raise ValueError(f'jit: expected True, False or "auto", got {jit!r}.')
    # Measured on CPUs only: the plain graph is the faster one at every size but a single query,
    # whose growing shapes XLA would compile one by one (benchmarks/NOTES.md, attention core).
    return False if jit == "auto" else jit


def _check_inputs(q, k, v):
    if not (q.dtype.is_floating and k.dtype.is_floating and v.dtype.is_floating):
        raise ValueError(
            f"q, k, v: expected float tensors, got {q.dtype.name}, {k.dtype.name} and "
            f"{v.dtype.name}. Cast them: tf.cast(q, tf.float32)."
        )
    if None in (q.shape.rank, k.shape.rank, v.shape.rank):
        raise ValueError("q, k, v: expected tensors of known rank, got an unknown rank.")
    if not q.shape.rank == k.shape.rank == v.shape.rank >= 2:
        raise ValueError(
            f"q, k, v: expected three tensors of one rank, (..., length, width), got "
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}."
        )
    if not q.shape[-1:].is_compatible_with(k.shape[-1:]):
        raise ValueError(
            f"q, k: expected one width, since every query is multiplied with every key, got "
            f"q {tuple(q.shape)} and k {tuple(k.shape)}."
        )
    if not k.shape[:-1].is_compatible_with(v.shape[:-1]):
        raise ValueError(
            f"k, v: expected one value for each key, got k {tuple(k.shape)} and v {tuple(v.shape)}."
        )
    if not q.shape[:-2].is_compatible_with(k.shape[:-2]):
        raise ValueError(
            f"q, k: expected the same batch and head axes, got q {tuple(q.shape)} and "
            f"k {tuple(k.shape)}."
        )
