"""Scaled dot-product attention, the core of every attention in this library.

Axes: B batch, N heads, T target (query) length, S source (key) length, H head width.
"""

import functools

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.blockwise import blockwise_attention
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.check_inputs import check_inputs
from tf_transformer.functional.attention.masks import blocked_scores
from tf_transformer.functional.attention.plan import choose_plan
from tf_transformer.functional.attention.rowwise import rowwise_attention
from tf_transformer.functional.attention.use_xla import use_xla
from tf_transformer.functional.attention.whole import whole_attention
from tf_transformer.functional.attention.whole_by_xla import whole_attention_by_xla
from tf_transformer.functional.attention.window import blocked_or_distant, check_window
from tf_transformer.functional.attention.windowed import windowed_attention
from tf_transformer.functional.xla_context import in_xla_program


def scaled_dot_product_attention(
    q,
    k,
    v,
    mask=None,
    *,
    bias=None,
    causal=False,
    window=None,
    dropout=None,
    return_attention_weights=True,
    plan="auto",
    jit="auto",
):
    """Average the values, each weighted by how well its key matches the query.

    softmax(Q K^T / sqrt(d_k)) V, "Attention Is All You Need", equation 1, section 3.2.1.

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        bias: None, a float tensor that broadcasts to (B, N, T, S), added to the scores, or
            `ByDistance`, what relative positions add, which no plan spreads over T x S at once.
        causal: bool, True also blocks key s for query t if s > t, as `create_look_ahead_mask`
            does, without a T x S mask.
        window: None, or an int of at least 1: key s is also blocked for query t if |t - s| >
            `window`. Time and memory are linear in T, see `windowed_attention`.
        dropout: None, or `(rate, seed)`: each weight is dropped with probability rate and the
            others are scaled by 1 / (1 - rate); seed is an integer tensor (2,).
        return_attention_weights: False returns None in place of the weights.
        plan: "auto", "whole", "rowwise", "blockwise", "windowed" or an `AttentionPlan`; see
            `choose_plan`.
        jit: True compiles with XLA, False runs as a plain TensorFlow graph, "auto" chooses; see
            `use_xla`.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype, the
        weights before dropout. Scores, mask and softmax are computed in float32 (float64 for
        float64 inputs).

    Raises:
        ValueError: If ranks, widths or dtypes do not match, a mask or bias does not broadcast, the
            mask has an integer dtype, the window is not an int of at least 1, the dropout rate is
            outside [0, 1), `plan` or `jit` is unknown, or the plan cannot return the requested
            weights or does not fit the window.

    Differs from the notes: they add `mask * -1e9` to a score; here the score is replaced by -1e9.
    The two are bitwise identical for |score| < 32, where the sum is exactly -1e9 in float32; for
    larger scores, only replacing keeps a blocked key from leaking through.

    Example:
        >>> q = tf.constant([[0.0, 10.0]])
        >>> k = v = tf.constant([[10.0, 0.0], [0.0, 10.0]])
        >>> output, weights = scaled_dot_product_attention(q, k, v)
        >>> weights.numpy().round(3).tolist()
        [[0.0, 1.0]]
    """
    q, k, v = (tf.convert_to_tensor(tensor) for tensor in (q, k, v))
    check_inputs(q, k, v)
    _check_widths(q, k)
    batch = tf.broadcast_static_shape(q.shape[:-2], k.shape[:-2])
    scores_shape = batch.concatenate((q.shape[-2], k.shape[-2]))
    blocked = blocked_scores(mask, scores_shape)
    if isinstance(bias, ByDistance):
        _check_by_distance(bias, scores_shape, k.shape[-1], v.shape[-1])
    elif bias is not None:
        bias = _full_bias(tf.convert_to_tensor(bias), scores_shape, q, k)
    if dropout is not None:
        _check_dropout(*dropout)
    check_window(window)
    compiled = use_xla(jit, q.shape, k.shape)
    plan = choose_plan(plan, q.shape, k.shape, return_attention_weights, compiled, window)
    core = (_cores_by_xla() if compiled else _PLAIN)[plan.name]
    options = {"causal": causal, "dropout": dropout}
    if plan.name == "whole":
        blocked = blocked_or_distant(blocked, window, q, k)
        return core(q, k, v, blocked, bias, **options, weights_wanted=return_attention_weights)
    if plan.name == "rowwise":
        sizes = {"most_scores": plan.most_scores}
    elif plan.name == "windowed":
        sizes = {"most_scores": plan.most_scores, "query_block": plan.query_block}
        options["window"] = window
    else:
        sizes = {"query_block": plan.query_block, "key_block": plan.key_block}
    return core(q, k, v, blocked, bias, **options, **sizes), None


_PLAIN = {
    "whole": whole_attention,
    "rowwise": rowwise_attention,
    "blockwise": blockwise_attention,
    "windowed": windowed_attention,
}
_IN_XLA = {
    "whole": whole_attention_by_xla,
    "rowwise": rowwise_attention,
    "blockwise": functools.partial(blockwise_attention, compiled=True),
    "windowed": functools.partial(windowed_attention, compiled=True),
}


def _compiled(core):
    return tf.function(core, jit_compile=True, autograph=False)


# A function with loops that was traced in a graph has no gradient in eager mode (TensorFlow 2.21).
_IN_GRAPHS, _EAGER = (
    {name: core if name == "whole" else _compiled(core) for name, core in _IN_XLA.items()}
    for _ in range(2)
)


def _cores_by_xla():
    if in_xla_program():
        return _IN_XLA
    return _EAGER if tf.executing_eagerly() else _IN_GRAPHS


def _check_widths(q, k):
    if not q.shape[-1:].is_compatible_with(k.shape[-1:]):
        raise ArgumentError(
            "q, k",
            "the same width, since every query is multiplied by every key",
            f"q {tuple(q.shape)} and k {tuple(k.shape)}",
        )


def _full_bias(bias, scores_shape, q, k):
    """Expand a bias to the rank of the scores, with last axes (T, S)."""
    fits = bias.dtype.is_floating and bias.shape.rank is not None
    fits = fits and bias.shape.rank <= scores_shape.rank
    sizes = zip(reversed(bias.shape if fits else ()), reversed(scores_shape), strict=False)
    if not fits or any(b not in (1, s) and None not in (b, s) for b, s in sizes):
        raise ArgumentError(
            "bias",
            (
                f"floats that broadcast to the scores {tuple(scores_shape)} = (batch, heads, "
                "queries, keys)"
            ),
            f"{bias.dtype.name} {bias.shape}",
        )
    while bias.shape.rank < scores_shape.rank:
        bias = tf.expand_dims(bias, 0)
    if bias.shape[-2:] == scores_shape[-2:] and scores_shape[-2:].is_fully_defined():
        return bias
    lengths = tf.shape(q)[-2:-1], tf.shape(k)[-2:-1]
    return tf.broadcast_to(bias, tf.concat([tf.shape(bias)[:-2], *lengths], 0))  # (..., T, S)


def _check_by_distance(bias, scores_shape, width, value_width):
    shape = None if bias.scores is None else bias.scores.shape[:-1]
    sizes = zip(reversed(shape or ()), reversed(scores_shape[:-2]), strict=False)
    too_long = shape is not None and shape.rank > scores_shape.rank - 2
    if too_long or any(b not in (1, s) and None not in (b, s) for b, s in sizes):
        raise ArgumentError(
            "bias",
            (
                "ByDistance with scores (batch, heads, distances), or fewer axes, for "
                f"{tuple(scores_shape)} = (batch, heads, queries, keys)"
            ),
            tuple(bias.scores.shape),
        )
    for name, table, needed in (
        ("keys", bias.keys, width),
        ("values", bias.values, value_width),
    ):
        if table is not None and table.shape[1] != needed:
            raise ArgumentError(
                "bias",
                f"ByDistance with {name} of width {needed}, that of {name[0]}",
                tuple(table.shape),
            )


def _check_dropout(rate, seed):
    if not 0 <= rate < 1:
        raise ArgumentError("dropout", "a rate of at least 0 and below 1", rate)
    seed = tf.convert_to_tensor(seed)
    if seed.shape != (2,) or not seed.dtype.is_integer:
        raise ArgumentError(
            "dropout",
            "(rate, seed) with a seed of two integers",
            f"a seed of {seed.dtype.name} {tuple(seed.shape)}",
        )
