"""Attention of one new position to a cache of the positions before it.

Axes: B batch, N heads, L cache length, H head width.
"""

import functools

import tensorflow as tf

from tf_transformer.functional.attention_plan import use_xla
from tf_transformer.functional.whole_attention import whole_attention


def cached_attention(q, keys, values, cache, position, bias=None, *, jit="auto"):
    """One step of decoding: put the new key and value into the cache and attend to all so far.

    What `scaled_dot_product_attention` under `causal` gives for row `position`, at the cost of one
    row. The cache keeps its size, so every step runs the same program.

    Args:
        q: float tensor (B, N, 1, H), the query of the new position.
        keys, values: (B, N, 1, H), its key and value.
        cache: two tensors (B, N, L, H), keys and values of the positions before; what stands at
            `position` and after it is never looked at.
        position: scalar int32 tensor, 0 <= position < L.
        bias: None, or a float tensor that broadcasts to (B, N, 1, L), added to the scores.
        jit: True, False or "auto", see `use_xla`.

    Returns:
        `(output, cache)`: (B, N, 1, H), and the cache with `position` filled in.

    Raises:
        ValueError: `q`, `keys` or `values` of another length than 1, or not of the cache's shape
            otherwise; an unknown `jit`.

    Example:
        >>> new = tf.ones((1, 2, 1, 4))
        >>> empty = tf.zeros((1, 2, 8, 4))
        >>> output, (keys, values) = cached_attention(new, new, new, (empty, empty), 0)
        >>> output.numpy().max(), keys.numpy().sum()
        (np.float32(1.0), np.float32(8.0))
    """
    expected = (*cache[0].shape[:2], 1, cache[0].shape[-1])
    for name, tensor in (("q", q), ("keys", keys), ("values", values)):
        if not tensor.shape.is_compatible_with(expected):
            raise ValueError(
                f"{name}: expected one position of the cache, {tuple(expected)}, got "
                f"{tuple(tensor.shape)}."
            )
    core = _cached_by_xla if use_xla(jit) else _cached
    return core(q, keys, values, cache, tf.convert_to_tensor(position), bias)


def _cached(q, keys, values, cache, position, bias, compiled=False):
    slots = tf.range(tf.shape(cache[0])[2])  # (L,)
    here = tf.reshape(tf.equal(slots, position), (-1, 1))  # (L, 1)
    filled = tuple(tf.where(here, new, old) for new, old in zip((keys, values), cache, strict=True))
    output, _ = whole_attention(q, *filled, slots > position, bias, compiled=compiled)
    return output, filled


_cached_by_xla = tf.function(
    functools.partial(_cached, compiled=True), jit_compile=True, autograph=False
)
