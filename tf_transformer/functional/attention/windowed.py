"""Windowed attention: each query attends to the keys near it, in time linear in the length.

Axes: T target (query) length, S source (key) length, H head width; M tiles of t queries and s keys.
Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.product import as_factor
from tf_transformer.functional.attention.windowed_loops import Windows
from tf_transformer.functional.attention.windowed_tiles import Tiles


def windowed_attention(
    q,
    k,
    v,
    blocked=None,
    bias=None,
    *,
    window,
    causal=False,
    dropout=None,
    query_block=128,
    most_scores=2**20,
    compiled=False,
):
    """Attention to the keys at most `window` positions away, without the other scores.

    "Attention Is All You Need", section 4 and table 1, "Self-Attention (restricted)". The queries
    are split into tiles of t, each with the t + 2 `window` keys it can reach, or t + `window` with
    `causal`. The backward pass recomputes each tile instead of storing it.
    """
    given, shape, dtype = q, (*q.shape[:-1], v.shape[-1]), q.dtype
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    if q.shape.rank == 2:  # the loops go over the first axis
        q, k, v = (tf.expand_dims(x, 0) for x in (q, k, v))
    tiles = Tiles(shape_of(q)[-2], shape_of(k)[-2], window, causal, query_block)
    all_reach_a_key = blocked is None and tiles.all_reach_a_key
    blocked = tiles.blocked(blocked, q.shape.rank)  # (..., M, t, s)
    others, constants, first = _terms(bias, window, tiles, q)
    constants["blocked"] = blocked

    @tf.custom_gradient
    def attend(q, k, v, *tensors):
        named = dict(zip(others, tensors, strict=True))
        windows = Windows(tiles, q, k, v, constants, named, first, dropout, most_scores)

        def gradient(upstream):
            gradients = zip(windows.backward(upstream), (q, k, v, *tensors), strict=True)
            return [tf.cast(g, x.dtype) for g, x in gradients]

        return windows.forward(), gradient

    inputs = tiles.padded_queries(q), tiles.padded_keys(k), tiles.padded_keys(v)
    output = attend(*(as_factor(x, compiled) for x in inputs), *others.values())
    output = tiles.unpadded(output)  # (..., T, H_v)
    if not all_reach_a_key:
        average = tf.reduce_mean(tf.cast(v, wide), axis=-2, keepdims=True)  # (..., 1, H_v)
        if isinstance(bias, ByDistance):
            average += tf.cast(bias.mean_values(tiles.length, tiles.source), wide)
        alone = tf.reduce_all(blocked, -1)  # (..., M, t)
        output = tf.where(tiles.rows(alone), average, output)
    output = tf.reshape(output, tf.concat([tf.shape(given)[:-1], tf.shape(output)[-1:]], 0))
    output.set_shape(shape)
    return tf.cast(output, dtype)


def _terms(bias, window, tiles, q):
    """What a bias is for `Windows`: tensors with a gradient, tensors without one, and `first`."""
    if bias is None:
        return {}, {}, 0
    wide = tf.float64 if q.dtype == tf.float64 else tf.float32
    if not isinstance(bias, ByDistance):
        return {"term": _like(q, tiles.of_pairs(tf.cast(bias, wide), 0))}, {}, 0
    near, scores = bias.cast(wide).within(window), {}
    if near.scores is not None:
        scores["term"] = _like(q, tiles.of_distances(near.scores, near.first))
    tables = {"keys": near.keys, "values": near.values}
    tables = {name: table for name, table in tables.items() if table is not None}
    if near.has_gradient:
        return {**scores, **tables}, {}, near.first
    return tables, scores, near.first


def _like(q, term):
    """Give a term (..., M, t, s) the leading axes of `q`, the first one known to be 1 or not."""
    while term.shape.rank < q.shape.rank + 1:
        term = tf.expand_dims(term, 0)
    if term.shape[0] is None:
        term = tf.broadcast_to(term, tf.concat([tf.shape(q)[:1], tf.shape(term)[1:]], 0))
    return term
