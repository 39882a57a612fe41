"""Attention from new positions to cached keys and values.

Axes: B batch, N heads, T new positions, C cache slots, H head width.
"""

import functools

import tensorflow as tf

from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.use_xla import use_xla
from tf_transformer.functional.attention.whole import whole_attention
from tf_transformer.functional.attention.whole_by_xla import whole_attention_by_xla
from tf_transformer.functional.attention.window import check_window


def cached_attention(
    q,
    keys,
    values,
    cache,
    slot,
    mask=None,
    bias=None,
    distances=None,
    *,
    window=None,
    jit="auto",
):
    """One decoding step: write new keys and values to the cache and attend to its contents.

    Without a mask, this gives rows `slot` to `slot + T - 1` of `scaled_dot_product_attention` with
    `causal=True` and the same `window`, at the cost of T rows. The cache has a fixed size, so every
    step runs the same program. Filled slots never move: beams that branch off one another need no
    copies, only masks that show each beam the slots of its own history.

    Args:
        q: float tensor (B, N, T, H), the queries of the new positions.
        keys, values: (B, N, T, H), their keys and values.
        cache: two tensors (B, N, C, H), the keys and values written so far.
        slot: scalar int32 tensor, 0 <= slot <= C - T, the first slot to write to.
        mask: None, or a bool tensor that broadcasts to (B, N, T, C), True = may attend.
        bias: None, a float tensor that broadcasts to (B, N, T, C), added to the scores, or
            `ByDistance`.
        distances: for `ByDistance` and `window`, an int32 tensor (T, C): position of the token in a
            slot minus that of a query. By default a token's position is its slot.
        window: None, or an int of at least 1: tokens more than `window` positions from a query are
            also blocked.
        jit: True, False or "auto", see `use_xla`.

    Returns:
        `(output, cache)`: (B, N, T, H), and the cache with the new keys and values.

    Raises:
        ValueError: If the shapes of `q`, `keys` or `values` do not match the cache or each other,
            the window is not an int of at least 1, or `jit` is unknown.

    Example:
        >>> new = tf.ones((1, 2, 1, 4))
        >>> empty = tf.zeros((1, 2, 8, 4))
        >>> output, (keys, values) = cached_attention(new, new, new, (empty, empty), 0)
        >>> output.numpy().max(), keys.numpy().sum()
        (np.float32(1.0), np.float32(8.0))
    """
    expected = (*cache[0].shape[:2], q.shape[-2], cache[0].shape[-1])
    for name, tensor in (("q", q), ("keys", keys), ("values", values)):
        if not tensor.shape.is_compatible_with(expected):
            raise ValueError(
                f"{name}: expected shape {tuple(expected)}, to match q and the cache, got "
                f"{tuple(tensor.shape)}."
            )
    check_window(window)
    core = _cached_by_xla if use_xla(jit, q.shape, cache[0].shape) else _cached
    return core(q, keys, values, cache, tf.convert_to_tensor(slot), mask, bias, distances, window)


def _cached(q, keys, values, cache, slot, mask, bias, distances, window, attend=whole_attention):
    cache = tuple(_put(old, new, slot) for new, old in zip((keys, values), cache, strict=True))
    queries = tf.expand_dims(slot + tf.range(tf.shape(q)[2]), 1)  # (T, 1)
    by_slot = tf.range(tf.shape(cache[0])[2]) - queries  # (T, C)
    mask = by_slot <= 0 if mask is None else mask
    distances = by_slot if distances is None else distances
    if window is not None:
        mask = tf.logical_and(mask, tf.abs(distances) <= window)
    if not isinstance(bias, ByDistance):
        return attend(q, *cache, ~mask, bias, weights_wanted=False)[0], cache
    wanted = bias.values is not None
    output, weights = attend(q, *cache, ~mask, bias.at(q, distances), weights_wanted=wanted)
    return output + bias.output_at(weights, distances) if wanted else output, cache


def _put(cache, new, slot):
    """Write the new rows to their slots; inside an XLA loop this happens in place."""
    batch, heads, slots, width = tf.unstack(tf.shape(cache))
    first = tf.expand_dims(tf.range(batch * heads) * slots + slot, 1)  # (B * N, 1)
    places = tf.reshape(first + tf.range(tf.shape(new)[2]), (-1, 1))  # (B * N * T, 1)
    rows, new = tf.reshape(cache, (-1, width)), tf.reshape(new, (-1, width))
    return tf.reshape(tf.tensor_scatter_nd_update(rows, places, new), tf.shape(cache))


_cached_by_xla = tf.function(
    functools.partial(_cached, attend=whole_attention_by_xla), jit_compile=True, autograph=False
)
