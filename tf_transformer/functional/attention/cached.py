"""Attention from new positions to cached keys and values.

Axes: B batch, N heads, G heads of keys and values, T new positions, C cache slots, H head width.
"""

import functools

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.by_distance import ByDistance, limited
from tf_transformer.functional.attention.masks import check_window
from tf_transformer.functional.attention.plan import use_xla
from tf_transformer.functional.attention.scaled_dot_product import fold_heads, unfold_heads
from tf_transformer.functional.attention.whole import whole_attention, whole_attention_by_xla
from tf_transformer.functional.ids import asserted
from tf_transformer.functional.tracing import in_xla_program, portable_positions


def cached_attention(
    q, keys, values, cache, slot, mask=None, bias=None, distances=None, *, window=None, jit="auto"
):
    """Write the keys and values of T new positions to slots of the cache, and attend to all slots.

    Without a mask, these are rows `slot` to `slot + T - 1` of causal attention. The cache has a
    fixed size, so every step runs the same program. Filled slots never move: beams that fork need
    no copies, only bool masks (B, N, T, C) that show each beam the slots of its own history; then
    `distances` (T, C) are the positions of the tokens in the slots minus those of the queries.
    A slot outside of the cache raises a ValueError; in a graph, tf.errors.InvalidArgumentError.
    """
    batch, groups, _, width = cache[0].shape
    for name, tensor in (("keys", keys), ("values", values), ("q", q)):
        heads = groups
        if name == "q" and None not in (groups, q.shape[1]):
            heads = max(1, q.shape[1] // groups) * groups
        expected = (batch, heads, q.shape[-2], width)
        if not tensor.shape.is_compatible_with(expected):
            expected = f"shape {expected}, to match q and the cache"
            raise ArgumentError(name, expected, tuple(tensor.shape))
    check_window(window)
    slot = tf.convert_to_tensor(slot)
    if portable_positions() is None:
        holds = (slot >= 0) & (slot + tf.shape(keys)[2] <= tf.shape(cache[0])[2])
        expected = "a slot from 0 on with room for all new positions before the cache's end"
        remedy = "Create a larger cache, for more steps."
        slot = asserted(slot, holds, ArgumentError("slot", expected, "another", remedy))
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
    output, weights = _grouped(attend, q.shape[1] // keys.shape[1], q, *cache, ~mask, bias, wanted)
    return output + by_distance.output_at(weights, distances) if wanted else output, cache


def _grouped(attend, times, q, k, v, blocked, bias, weights_wanted):
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
        # Of the operations that write a slice, only this one can reuse the memory of its input.
        end, first_axes = slot + tf.shape(new)[2], 0b011  # which are written as a whole
        written = tf.raw_ops.TensorStridedSliceUpdate(
            input=cache,
            begin=[0, 0, slot],
            end=[0, 0, end],
            strides=[1, 1, 1],
            value=new,
            begin_mask=first_axes,
            end_mask=first_axes,
        )
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
