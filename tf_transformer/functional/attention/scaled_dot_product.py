"""Scaled dot-product attention, the core of every attention in this library.

Also for groups of heads that share keys and values, with recording for figures, and from new
positions to cached keys and values.

Axes: B batch, N heads, G heads of keys and values, T target (query) length or new positions, S
source (key) length, C cache slots, H head width. Leading axes (batch, heads) are "...".
"""

import contextvars
import functools
from typing import NamedTuple

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.attention.blockwise import blockwise_attention
from tf_transformer.functional.attention.by_distance import ByDistance, limited
from tf_transformer.functional.attention.fused import fused_attention
from tf_transformer.functional.attention.masks import (
    blocked_or_distant,
    blocked_scores,
    check_window,
    fits,
    named,
)
from tf_transformer.functional.attention.plan import choose_plan, use_xla, why_not_fused
from tf_transformer.functional.attention.rowwise import rowwise_attention, windowed_attention
from tf_transformer.functional.attention.whole import whole_attention, whole_attention_by_xla
from tf_transformer.functional.tensors import (
    asserted,
    in_xla_program,
    portable_positions,
    setting,
    shape_of,
)


def check_inputs(q, k, v):
    """Check that queries, keys and values match, for any kind of score."""
    if not (q.dtype.is_floating and q.dtype == k.dtype == v.dtype):
        got = f"{q.dtype.name}, {k.dtype.name} and {v.dtype.name}"
        expected = "float tensors of one dtype"
        raise ArgumentError("q, k, v", expected, got, "Cast them: tf.cast(q, tf.float32).")
    q, k, v = q.shape, k.shape, v.shape
    if None in (q.rank, k.rank, v.rank):
        raise ArgumentError("q, k, v", "tensors of known rank", "an unknown rank")
    if not q.rank == k.rank == v.rank >= 2:
        expected = "three tensors of the same rank, (..., length, width)"
        raise ArgumentError("q, k, v", expected, f"q {tuple(q)}, k {tuple(k)}, v {tuple(v)}")
    if not k[:-1].is_compatible_with(v[:-1]):
        raise ArgumentError("k, v", "one value for each key", f"k {tuple(k)} and v {tuple(v)}")
    if not q[:-2].is_compatible_with(k[:-2]):
        got = f"q {tuple(q)} and k {tuple(k)}"
        raise ArgumentError("q, k", "the same batch and head axes", got)


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
        q, k, v: float tensors (..., T, H), (..., S, H) and (..., S, H_v) of the same dtype.
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        bias: None, a float tensor that broadcasts to (B, N, T, S), added to the scores, or
            `ByDistance`, the terms of relative positions, which no plan expands to T x S at once.
            Values below -5e8 count as -5e8, so that no bias outweighs a mask.
        causal: bool, True also blocks key s for query t if s > t, without a T x S mask.
        window: None, or an int of at least 1: key s is also blocked for query t if |t - s| >
            `window`. Time and memory are linear in T.
        dropout: None, or `(rate, seed)`: each weight is dropped with probability rate and the
            others are scaled by 1 / (1 - rate); seed is an integer tensor (2,).
        return_attention_weights: True computes all T x S scores at once; False returns None in
            place of the weights: pass it for long texts.
        plan, jit: see `attention_plan`, which sets what "auto" means.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype, the
        weights before dropout. Scores, mask and softmax are float32 (float64 for float64).

    Raises:
        ValueError: If ranks, widths or dtypes do not match, a mask or bias does not broadcast, the
            mask has an integer dtype, the window, dropout, `plan` or `jit` is out of range, or the
            plan cannot return the requested weights or does not fit the window.

    Differs from the notes, which add `mask * -1e9` to a score: here -1e9 replaces it. For |score| <
    32 both give the same bits; above, only replacing keeps a blocked key from leaking through.

    Example:
        >>> q, k = tf.constant([[0.0, 10.0]]), tf.constant([[10.0, 0.0], [0.0, 10.0]])
        >>> output, weights = scaled_dot_product_attention(q, k, v=k)
        >>> weights.numpy().round(3).tolist()
        [[0.0, 1.0]]
    """
    q, k, v = (tf.convert_to_tensor(tensor) for tensor in (q, k, v))
    check_inputs(q, k, v)
    if not q.shape[-1:].is_compatible_with(k.shape[-1:]):
        expected = "the same width, since every query is multiplied by every key"
        raise ArgumentError("q, k", expected, f"q {tuple(q.shape)} and k {tuple(k.shape)}")
    batch = tf.broadcast_static_shape(q.shape[:-2], k.shape[:-2])
    scores_shape = batch.concatenate((q.shape[-2], k.shape[-2]))
    blocked = blocked_scores(mask, scores_shape)
    if isinstance(bias, ByDistance):
        _check_by_distance(bias, scores_shape, k.shape[-1], v.shape[-1])
        bias = limited(bias)
    elif bias is not None:
        bias = _full_bias(tf.convert_to_tensor(bias), scores_shape, q, k)
    if dropout is not None:
        _check_dropout(*dropout)
    check_window(window)
    compiled = use_xla(jit, q.shape, k.shape)
    options = {"causal": causal, "dropout": dropout}
    not_fused = why_not_fused(q, k, v, blocked, bias, **options, window=window, compiled=compiled)
    shapes = q.shape, k.shape
    plan = choose_plan(plan, *shapes, return_attention_weights, compiled, window, not_fused)
    core = (_cores_by_xla() if compiled else _PLAIN)[plan.name]
    if plan.name == "whole":
        blocked = blocked_or_distant(blocked, window, q, k)
        return core(q, k, v, blocked, bias, **options, weights_wanted=return_attention_weights)
    options |= {size: getattr(plan, size) for size in _SIZES[plan.name]}
    if plan.name in ("windowed", "fused"):
        options["window"] = window
    return core(q, k, v, blocked, bias, **options), None


_SIZES = {
    "rowwise": ("most_scores",),
    "blockwise": ("query_block", "key_block"),
    "windowed": ("most_scores", "query_block"),
    "fused": (),
}
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
    "fused": fused_attention,
}


_compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
# A function with loops that was traced in a graph has no gradient in eager mode (TensorFlow 2.21).
_IN_GRAPHS, _EAGER = (
    {name: core if name == "whole" else _compiled(core) for name, core in _IN_XLA.items()}
    for _ in range(2)
)


def _cores_by_xla():
    if in_xla_program():
        return _IN_XLA
    return _EAGER if tf.executing_eagerly() else _IN_GRAPHS


def _full_bias(bias, scores_shape, q, k):
    """Expand a bias to the rank of the scores, with last axes (T, S)."""
    known = bias.dtype.is_floating and bias.shape.rank is not None
    if not known or not fits(bias.shape, scores_shape):
        expected = f"floats that broadcast to {named(scores_shape)}"
        raise ArgumentError("bias", expected, f"{bias.dtype.name} {bias.shape}")
    bias = limited(bias)
    while bias.shape.rank < scores_shape.rank:
        bias = tf.expand_dims(bias, 0)
    if bias.shape[-2:] == scores_shape[-2:] and scores_shape[-2:].is_fully_defined():
        return bias
    lengths = tf.shape(q)[-2:-1], tf.shape(k)[-2:-1]
    return tf.broadcast_to(bias, tf.concat([tf.shape(bias)[:-2], *lengths], 0))  # (..., T, S)


def _check_by_distance(bias, scores_shape, width, value_width):
    if bias.scores is not None and not fits(bias.scores.shape[:-1], scores_shape[:-2]):
        shape = "ByDistance with scores (batch, heads, distances), or fewer axes"
        expected = f"{shape}, for {tuple(scores_shape)} = (batch, heads, queries, keys)"
        raise ArgumentError("bias", expected, tuple(bias.scores.shape))
    for name, table, needed in (("keys", bias.keys, width), ("values", bias.values, value_width)):
        if table is not None and table.shape[1] != needed:
            expected = f"ByDistance with {name} of width {needed}, the width of {name[0]}"
            raise ArgumentError("bias", expected, tuple(table.shape))


def _check_dropout(rate, seed):
    check(0 <= rate < 1, "dropout", "a rate of at least 0 and below 1", rate)
    seed = tf.convert_to_tensor(seed)
    if seed.shape != (2,) or not seed.dtype.is_integer:
        got = f"a seed of {seed.dtype.name} {tuple(seed.shape)}"
        raise ArgumentError("dropout", "(rate, seed) with a seed of two integers", got)


_RECORD = contextvars.ContextVar("record", default=None)


class RecordedAttention(NamedTuple):
    """The tensors of one call of attention."""

    queries: tf.Tensor  # (B, N, T, H), after the projection and the rotation by positions
    keys: tf.Tensor  # (B, N, S, H); or (B, G, S, H), where groups of heads share keys
    weights: tf.Tensor | None  # (B, N, T, S), or None if the caller asked for none


def recorded_attention():
    """Within this context, record the tensors of each eager `grouped_attention` of this thread."""
    return setting(_RECORD, [])


def grouped_attention(q, k, v, times, mask=None, *, bias=None, causal=False, window=None, **more):
    """Attention with fewer heads of keys and values than of queries, Ainslie et al. 2023, "GQA"."""
    options = {"mask": mask, "bias": bias, "causal": causal, "window": window, **more}
    if times == 1:
        output, weights = scaled_dot_product_attention(q, k, v, **options)
    elif bias is None and window is None and not causal and _same_for_all_queries(mask):
        results = scaled_dot_product_attention(fold_heads(q, times), k, v, **options)
        output, weights = (x if x is None else unfold_heads(x, times) for x in results)
    else:
        keys, values = (tf.repeat(x, times, axis=1) for x in (k, v))
        output, weights = scaled_dot_product_attention(q, keys, values, **options)
    calls = _RECORD.get()
    if calls is not None:
        calls.append(RecordedAttention(q, k, weights))
    return output, weights


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


def cached_attention(
    q, keys, values, cache, slot, mask=None, bias=None, distances=None, *, window=None, jit="auto"
):
    """Write the keys and values of T new positions to slots of the cache, and attend to all slots.

    Without a mask, these are rows `slot` to `slot + T - 1` of causal attention. Filled slots never
    move: a bool mask (B, N, T, C) shows each beam those of its own history; then `distances` (T, C)
    are the positions of the tokens in the slots minus those of the queries.
    """
    batch, groups, _, width = cache[0].shape
    heads = groups if None in (groups, q.shape[1]) else max(1, q.shape[1] // groups) * groups
    for name, tensor, count in (
        ("keys", keys, groups),
        ("values", values, groups),
        ("q", q, heads),
    ):
        shape = (batch, count, q.shape[-2], width)
        expected = f"shape {shape}, to match q and the cache"
        check(tensor.shape.is_compatible_with(shape), name, expected, tensor.shape)
    check_window(window)
    slot = tf.convert_to_tensor(slot)
    if portable_positions() is None:
        holds = (slot >= 0) & (slot + tf.shape(keys)[2] <= tf.shape(cache[0])[2])
        expected = "a slot from 0 on with room for all new positions before the cache's end"
        remedy = "Create a larger cache, for more steps."
        slot = asserted(slot, holds, "slot", expected, "another", remedy)
    core = _cached_by_xla if use_xla(jit, q.shape, cache[0].shape) else _cached
    return core(q, keys, values, cache, slot, mask, bias, distances, window)


def _cached(q, keys, values, cache, slot, mask, bias, distances, window, attend=whole_attention):
    cache = tuple(_put(old, new, slot) for new, old in zip((keys, values), cache, strict=True))
    slots = tf.range(tf.shape(cache[0])[2])
    new = tf.expand_dims(slot + tf.range(tf.shape(q)[2]), 1)  # (T, 1)
    mask = slots <= new if mask is None else mask  # (T, C)
    distances = slots - new if distances is None else distances  # (T, C)
    if window is not None:
        mask = tf.logical_and(mask, tf.abs(distances) <= window)
    bias = bias if bias is None else limited(bias)
    by_distance = bias if isinstance(bias, ByDistance) else None
    bias = bias if by_distance is None else by_distance.at(q, distances)
    wanted = by_distance is not None and by_distance.values is not None
    output, weights = _attend_in_groups(
        attend, q.shape[1] // keys.shape[1], q, *cache, ~mask, bias, wanted
    )
    return output + by_distance.output_at(weights, distances) if wanted else output, cache


def _attend_in_groups(attend, times, q, k, v, blocked, bias, weights_wanted):
    """Attention of N heads to G = N / times heads of keys and values; see `whole_attention`."""
    if times == 1:
        return attend(q, k, v, blocked, bias, weights_wanted=weights_wanted)
    scores = tf.concat([tf.shape(q)[:-1], tf.shape(k)[-2:-1]], 0)  # (B, N, T, C)
    blocked, bias = (
        x if x is None else fold_heads(tf.broadcast_to(x, scores), times) for x in (blocked, bias)
    )
    q = fold_heads(q, times)
    results = attend(q, k, v, blocked, bias, weights_wanted=weights_wanted)
    return [x if x is None else unfold_heads(x, times) for x in results]


def _put(cache, new, slot):
    """Write the new rows to their slots; inside a loop this happens in place."""
    if not in_xla_program() and portable_positions() is None:
        # Of the operations that write a slice, only this one can reuse the memory of its input. It
        # takes half the time with two axes in place of four.
        batch, heads, slots, width = shape_of(cache)
        size = tf.shape(new)[2] * width
        written = tf.raw_ops.TensorStridedSliceUpdate(
            input=tf.reshape(cache, (batch * heads, slots * width)),
            begin=[0, slot * width],
            end=[0, slot * width + size],
            strides=[1, 1],
            value=tf.reshape(new, (batch * heads, size)),
            begin_mask=0b01,  # the first axis is written as a whole
            end_mask=0b01,
        )
        written = tf.reshape(written, (batch, heads, slots, width))
        written.set_shape(cache.shape)
        return written
    batch, heads, slots, width = tf.unstack(tf.shape(cache))
    first = tf.expand_dims(tf.range(batch * heads) * slots + slot, 1)  # (B * N, 1)
    places = tf.reshape(first + tf.range(tf.shape(new)[2]), (-1, 1))  # (B * N * T, 1)
    rows, new = tf.reshape(cache, (-1, width)), tf.reshape(new, (-1, width))
    return tf.reshape(tf.tensor_scatter_nd_update(rows, places, new), tf.shape(cache))


_cached_by_xla = tf.function(
    functools.partial(_cached, attend=whole_attention_by_xla), jit_compile=True, autograph=False
)
