"""Attention by blocks of whole rows: some heads and queries at a time, all their keys at once.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H head width;
r and t are the sizes of one block of heads and of queries.
"""

import tensorflow as tf

from tf_transformer.functional.blocks import Blocks
from tf_transformer.functional.whole_attention import (
    attention_scores,
    blocked_or_future,
    dropout_factors,
    fold_in,
    whole_attention,
)

# Under `causal` the queries are cut into this many stripes, each with the keys up to its end:
# 9/16 of the work instead of the 1/2 that single rows would need.
_STRIPES = 8


def rowwise_attention(
    q, k, v, blocked=None, bias=None, *, causal=False, dropout=None, most_scores=2**20
):
    """The output of attention with few of its T x S scores in memory, and those in the cache.

    Rows of the softmax know nothing of each other, so a block of heads and queries with all their
    keys is a whole attention. The gradient computes a block a second time instead of keeping it
    (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). Two blocks are in flight,
    so that the matrix products of one run beside the softmax of the other.

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        blocked: None, or a bool tensor that broadcasts to (..., T, S), True = blocked.
        bias: None, or a float tensor of the rank of `q` that broadcasts to (..., T, S).
        causal: bool, True also blocks key s for query t wherever s > t.
        dropout: None, or `(rate, seed)`: weights are dropped with this probability, the same ones
            forward and backward; seed is an integer tensor (2,).
        most_scores: int, how many scores a block has at most, if it has more than one row.

    Returns:
        (..., T, H_v), in the dtype of `q`; computed in float32 (float64 for float64).

    Example:
        >>> q = tf.random.stateless_normal((1, 2, 7, 4), (1, 2))
        >>> rowwise_attention(q, q, q, causal=True, most_scores=14).shape.as_list()
        [1, 2, 7, 4]
    """
    length, source = q.shape[-2], k.shape[-2]
    options = {"dropout": dropout, "most_scores": most_scores}
    if not causal or None in (length, source):
        return _rowwise(q, k, v, blocked, bias, causal=causal, **options)
    stripes = []
    step = -(-length // _STRIPES)
    for start in range(0, length, step):
        stop = min(start + step, length)
        seen = slice(min(stop, source))
        stripe = (
            q[..., start:stop, :],
            k[..., seen, :],
            v[..., seen, :],
            None if blocked is None else _rows(blocked, start, stop)[..., seen],
            None if bias is None else _rows(bias, start, stop)[..., seen],
        )
        if dropout is not None:
            options["dropout"] = dropout[0], fold_in(dropout[1], start)
        stripes.append(_rowwise(*stripe, causal=True, first_query=start, **options))
    output = tf.concat(stripes, axis=-2)
    if blocked is None:  # then every query has a free key, the first one
        return output
    # A query without a free key has averaged over the keys of its stripe only.
    queries, keys = tf.range(length), tf.range(source)
    first_free = tf.reduce_min(tf.where(blocked, source, keys), axis=-1, keepdims=True)
    lonely = first_free > tf.expand_dims(queries, 1)  # (..., T, 1)
    return tf.where(lonely, tf.reduce_mean(v, axis=-2, keepdims=True), output)


def _rows(x, start, stop):
    return x if x.shape[-2] == 1 else x[..., start:stop, :]


def _rowwise(
    q, k, v, blocked, bias, *, causal=False, first_query=0, dropout=None, most_scores=2**20
):
    dtype = tf.float64 if q.dtype == tf.float64 else tf.float32
    lead = tf.shape(q)[:-2]
    inputs = [_flat(tf.cast(x, dtype)) for x in (q, k, v)]  # (R, T, H), (R, S, H), (R, S, H_v)
    count, length = (_size(inputs[0], axis) for axis in (0, 1))
    rows = most_scores // _size(inputs[1], 1)
    queries = Blocks(length, _even(length, rows))
    # A bias is given to one head at a time, which alone says where its gradient belongs.
    together = most_scores // (queries.size * _size(inputs[1], 1)) if bias is None else 1
    heads = Blocks(count, _even(count, together))
    blocked_at, bias_at = (_places(x, lead) for x in (blocked, bias))
    blocked = None if blocked is None else _flat(blocked)
    if bias is not None:
        inputs.append(_flat(tf.cast(bias, dtype)))

    def cut(x, i, j, at):
        """Block `j` of the rows of a mask or bias, for block `i` of the heads."""
        return queries.cut(tf.gather(x, heads.cut(at, 0, i)), 1, j)

    def block_options(i, j):
        """What blocks the scores of one block, and its dropout."""
        n = i * queries.count + j
        return {
            "blocked": None if blocked is None else cut(blocked, i, j, blocked_at),
            "causal": causal,
            "first_query": first_query + queries.start(j),
        }, None if dropout is None else (dropout[0], fold_in(dropout[1], n))

    def pieces(i, j, q, k, v, *bias):
        q = queries.cut(heads.cut(q, 0, i), 1, j)
        keys = (heads.cut(x, 0, i) for x in (k, v))
        return [q, *keys, *(cut(x, i, j, bias_at) for x in bias)]

    def array(count, *shape):
        static = [size if isinstance(size, int) else None for size in shape]
        return tf.TensorArray(dtype, count, element_shape=static, clear_after_read=False)

    def whole(blocks, width):
        """Blocks in the order of their computation as (R, T, width)."""
        shape = (heads.count, queries.count, heads.size, queries.size, width)
        rows = queries.join(tf.reshape(blocks.stack(), shape), axis=1)  # (.., r, T, width)
        rows = tf.reshape(rows, (heads.count, heads.size, length * width))
        return tf.reshape(heads.join(rows), (count, length, width))

    @tf.custom_gradient
    def attend(*inputs):
        def forward(n, outputs):
            i, j = n // queries.count, n % queries.count
            hidden, dropped = block_options(i, j)
            q, k, v, *bias = pieces(i, j, *inputs)
            output, _ = whole_attention(
                q, k, v, bias=bias[0] if bias else None, **hidden, dropout=dropped
            )
            return n + 1, outputs.write(n, output)

        blocks, width = heads.count * queries.count, inputs[2].shape[-1]
        outputs = array(blocks, heads.size, queries.size, width)
        _, outputs = tf.while_loop(
            lambda n, _: n < blocks, forward, (tf.constant(0), outputs), parallel_iterations=2
        )
        output = whole(outputs, width)
        return output, lambda upstream: gradient(upstream, output, *inputs)

    def gradient(upstream, output, *inputs):
        slopes = tf.reduce_sum(upstream * output, axis=-1, keepdims=True)  # (R, T, 1)

        def backward(i, *arrays):
            def some_rows(j, dq, dk, dv, *dbias):
                up, slope = (queries.cut(heads.cut(x, 0, i), 1, j) for x in (upstream, slopes))
                # Rows that the block before has counted already.
                seen = tf.expand_dims(queries.seen(j), 1)  # (t, 1)
                up, slope = (tf.where(seen, tf.zeros((), dtype), x) for x in (up, slope))
                gq, gk, gv, *gbias = _block_gradients(
                    up, slope, *block_options(i, j), *pieces(i, j, *inputs)
                )
                dq = dq.write(i * queries.count + j, gq)
                for tiles, tile in zip(dbias, gbias, strict=True):
                    at = bias_at[i] * queries.count + j
                    dbias = [tiles.write(at, tiles.read(at) + tile[0])]
                return j + 1, dq, dk + gk, dv + gv, *dbias

            dq, dk, dv, *dbias = arrays
            keys = [tf.zeros_like(heads.cut(x, 0, i)) for x in inputs[1:3]]
            _, dq, dk_i, dv_i, *dbias = tf.while_loop(
                lambda j, *_: j < queries.count,
                some_rows,
                (tf.constant(0), dq, *keys, *dbias),
                parallel_iterations=2,
            )
            return i + 1, dq, dk.write(i, dk_i), dv.write(i, dv_i), *dbias

        q, k, v, *bias = inputs
        source, width = _size(k, 1), q.shape[-1]
        arrays = [array(heads.count * queries.count, heads.size, queries.size, width)]
        arrays += [array(heads.count, heads.size, source, x.shape[-1]) for x in (k, v)]
        for x in bias:
            shape = (_size(x, 0) * queries.count, queries.size, source)
            arrays.append(array(*shape).unstack(tf.zeros(shape, dtype)))
        _, dq, dk, dv, *dbias = tf.while_loop(
            lambda i, *_: i < heads.count,
            backward,
            (tf.constant(0), *arrays),
            parallel_iterations=2,
        )

        def join_keys(blocks, like):
            blocks = tf.reshape(blocks.stack(), (heads.count, heads.size, -1))
            return tf.reshape(heads.join(blocks), tf.shape(like))

        dbias = [
            queries.join(
                tf.reshape(tiles.stack(), (_size(x, 0), queries.count, queries.size, source)),
                axis=1,
            )
            for tiles, x in zip(dbias, bias, strict=True)
        ]
        return [whole(dq, width), join_keys(dk, k), join_keys(dv, v), *dbias]

    output = attend(*inputs)  # (R, T, H_v)
    output = tf.reshape(output, tf.concat([lead, [length, v.shape[-1]]], 0))
    output.set_shape((*q.shape[:-1], v.shape[-1]))
    return tf.cast(output, q.dtype)


def _block_gradients(upstream, slope, hidden, dropout, q, k, v, bias=None):
    """Gradients of one block by its q, k, v and bias, from its scores made anew."""
    blocked = blocked_or_future(q=q, k=k, **hidden)
    weights = tf.nn.softmax(attention_scores(q, k, blocked, bias))  # (r, t, S)
    dropped, dweights = weights, tf.matmul(upstream, v, transpose_b=True)
    if dropout is not None:
        factors = dropout_factors(tf.shape(weights), q.dtype, *dropout)
        dropped, dweights = weights * factors, dweights * factors
    dscores = weights * (dweights - slope)
    if blocked is not None:  # of a row without a free key; in the others the weight is 0 already
        dscores = tf.where(blocked, tf.zeros((), q.dtype), dscores)
    scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], q.dtype))
    gradients = [
        tf.matmul(dscores, k) * scale,
        tf.matmul(dscores, q * scale, transpose_a=True),
        tf.matmul(dropped, upstream, transpose_a=True),
    ]
    return gradients if bias is None else [*gradients, dscores]


def _size(x, axis):
    return tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]


def _even(length, size):
    """The size of as few blocks as sizes up to `size` allow, all about the same."""
    most = max if isinstance(length, int) and isinstance(size, int) else tf.maximum
    count = most(1, -(-length // most(1, size)))
    return most(1, -(-length // count))


def _flat(x):
    """All leading axes as one."""
    leading = [tf.reduce_prod(tf.shape(x)[:-2])]
    flat = tf.reshape(x, tf.concat([leading, tf.shape(x)[-2:]], 0))
    flat.set_shape((x.shape[:-2].num_elements(), *x.shape[-2:]))
    return flat


def _places(x, lead):
    """For each head of the whole batch, which row of `_flat(x)` is its own; int32 (R,)."""
    if x is None:
        return None
    missing = tf.fill((tf.size(lead) - tf.rank(x) + 2,), 1)
    own = tf.concat([missing, tf.shape(x)[:-2]], 0)
    numbers = tf.reshape(tf.range(tf.reduce_prod(own)), own)
    return tf.reshape(tf.broadcast_to(numbers, lead), (-1,))
