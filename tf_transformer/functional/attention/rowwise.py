"""Rowwise attention: some heads and queries at a time, with all their keys.

Axes: T target (query) length, S source (key) length, H head width. Leading axes (batch, heads)
are "...".
"""

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.leading_axes import merge_leading
from tf_transformer.functional.attention.rowwise_distance_term import DistanceTerm
from tf_transformer.functional.attention.rowwise_loops import Rows
from tf_transformer.functional.attention.rowwise_tensor_term import TensorTerm
from tf_transformer.functional.attention.whole import blocked_or_future
from tf_transformer.functional.dropout import fold_in

# With `causal`, the queries are split into this many stripes, each with the keys up to its end:
# 9/16 of the work, compared with 1/2 for single rows.
_STRIPES = 8


def rowwise_attention(
    q, k, v, blocked=None, bias=None, *, causal=False, dropout=None, most_scores=2**20
):
    """Attention output with only a few of the T x S scores in memory, sized for the CPU cache.

    Softmax rows are independent, so a block of heads and queries with all their keys is a complete
    attention. The backward pass recomputes each block instead of storing it (Chen et al. 2016,
    "Training Deep Nets with Sublinear Memory Cost"). Two blocks are in flight, so that the matrix
    products of one overlap with the softmax of the other.
    """
    length, source = q.shape[-2], k.shape[-2]
    if causal and None in (length, source):
        causal, blocked = False, blocked_or_future(blocked, True, q, k)
    if not causal:
        return _attend(q, k, v, blocked, bias, dropout, most_scores)
    stripes = []
    step = -(-length // _STRIPES)
    for start in range(0, length, step):
        rows, seen = (start, min(step, length - start)), (0, min(start + step, length, source))
        stripe = _attend(
            _part(q, -2, *rows),
            _part(k, -2, *seen),
            _part(v, -2, *seen),
            None if blocked is None else _part(_part(blocked, -2, *rows), -1, *seen),
            _part_of_bias(bias, rows, seen),
            None if dropout is None else (dropout[0], fold_in(dropout[1], start)),
            most_scores,
            past=min(start, source),
        )
        stripes.append(stripe)
    output = tf.concat(stripes, axis=-2)
    if blocked is None:  # every query may attend to the first key
        return output
    # A query without a free key has been averaged over the keys of its stripe only.
    queries, keys = tf.range(length), tf.range(source)
    first_free = tf.reduce_min(tf.where(blocked, source, keys), axis=-1, keepdims=True)
    lonely = first_free > tf.expand_dims(queries, 1)  # (..., T, 1)
    average = tf.reduce_mean(v, axis=-2, keepdims=True)
    if isinstance(bias, ByDistance):
        average += tf.cast(bias.mean_values(length, source), average.dtype)
    return tf.where(lonely, average, output)


def _attend(q, k, v, blocked, bias, *options, **more):
    """Run both loops, with merged leading axes and a hand-written gradient."""
    lead, dtype = tf.shape(q)[:-2], q.dtype
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    by_distance = bias.cast(wide) if isinstance(bias, ByDistance) else None
    term = None
    if by_distance is None and bias is not None:
        term = TensorTerm(tf.cast(bias, wide), lead)
    elif by_distance is not None and by_distance.scores is not None:
        term = DistanceTerm(by_distance, lead)
    terms = [] if term is None else term.tensors
    tables = [] if by_distance is None else by_distance.tables

    @tf.custom_gradient
    def attend(q, k, v, *others):
        mine, rest = others[: len(terms)], others[len(terms) :]
        given = (None, None, 0)
        if by_distance is not None:
            given = (*by_distance.unpack(rest), by_distance.first)
        rows = Rows(q, k, v, lead, blocked, term, mine, given, *options, **more)
        output = rows.forward()
        return output, lambda upstream: rows.backward(upstream, output)

    output = attend(*(merge_leading(tf.cast(x, wide)) for x in (q, k, v)), *terms, *tables)
    output = tf.reshape(output, tf.concat([lead, tf.shape(output)[1:]], 0))  # (..., T, H_v)
    output.set_shape((*q.shape[:-1], v.shape[-1]))
    return tf.cast(output, dtype)


def _part(x, axis, start, size):
    """Slice one axis; return `x` if that axis is 1 and broadcasts."""
    if x.shape[axis] == 1:
        return x
    starts, sizes = [0] * x.shape.rank, shape_of(x)
    starts[axis], sizes[axis] = start, size
    return tf.slice(x, starts, sizes)  # not x[...], whose gradient runs on one thread


def _part_of_bias(bias, rows, seen):
    if bias is None:
        return None
    if isinstance(bias, ByDistance):
        return bias.from_query(rows[0])
    return _part(_part(bias, -2, *rows), -1, *seen)
