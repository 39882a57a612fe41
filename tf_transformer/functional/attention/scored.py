"""Attention with other scores than the scaled dot product: multiplicative, bilinear, additive.

Axes: R heads of the whole batch, T target (query) length, S source (key) length, H width, D width
of queries, D_k width of keys, F width of a projection, U units of the network; r, t and s are the
sizes of a block of heads, of queries and of keys. Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.blocks import (
    Blocks,
    even_size,
    join_grid,
    merge_leading,
    over_blocks,
    places,
    shape_of,
    zeros_array,
)
from tf_transformer.functional.attention.masks import blocked_scores
from tf_transformer.functional.attention.scaled_dot_product import (
    check_inputs,
    scaled_dot_product_attention,
)
from tf_transformer.functional.attention.whole import BLOCKED_SCORE

__all__ = ["additive_attention", "bilinear_attention", "multiplicative_attention"]


def wide_dtype(x):
    """The dtype of scores: float64 for float64, float32 for every other dtype."""
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def project(x, kernel, name):
    """x W, in the dtype of the scores."""
    dtype, kernel = wide_dtype(x), tf.convert_to_tensor(kernel)
    if kernel.shape.rank != 2 or not x.shape[-1:].is_compatible_with(kernel.shape[:1]):
        raise ArgumentError(
            name,
            f"shape ({x.shape[-1]}, any), a row for each column of the input {tuple(x.shape)}",
            kernel.shape,
        )
    rows, width = kernel.shape
    flat = tf.reshape(tf.cast(x, dtype), (-1, rows))  # one product, not one for each batch row
    projected = tf.matmul(flat, tf.cast(kernel, dtype))
    projected = tf.reshape(projected, tf.concat([tf.shape(x)[:-1], [width]], 0))
    projected.set_shape((*x.shape[:-1], width))
    return projected


def multiplicative_attention(q, k, v, mask=None, **options):
    """Attention with the score q . k, the product of query and key without a scale.

    softmax(Q K^T) V: the score "dot" of Luong et al. 2015, "Effective Approaches to Attention-based
    Neural Machine Translation", section 3.1. For vectors with N(0, 1) entries its standard
    deviation is sqrt(H), so wide vectors give weights near 0 and 1 and small gradients;
    `scaled_dot_product_attention` divides by sqrt(H).

    Args:
        q: float tensor (..., T, H).
        k: float tensor (..., S, H).
        v: float tensor (..., S, H_v).
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        **options: `bias`, `causal`, `dropout`, `return_attention_weights`, `plan` and `jit`, see
            `scaled_dot_product_attention`.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype, or None in
        place of weights that are not wanted. Scores and softmax are float32 (float64 for float64).

    Raises:
        ValueError: See `scaled_dot_product_attention`.

    Example:
        >>> q = tf.constant([[0.0, 1.0]])
        >>> k = v = tf.constant([[4.0, 0.0], [0.0, 4.0]])
        >>> print(multiplicative_attention(q, k, v)[1].numpy().round(3))
        [[0.018 0.982]]
    """
    q, k = (tf.convert_to_tensor(x) for x in (q, k))
    if not (q.dtype.is_floating and k.dtype.is_floating):
        return scaled_dot_product_attention(q, k, v, mask, **options)  # which says what is wrong
    # Both in float32: q sqrt(H) can overflow float16 and is rounded in bfloat16.
    dtype, wide = q.dtype, wide_dtype(q)
    q, k = tf.cast(q, wide), tf.cast(k, wide)
    scale = tf.sqrt(tf.cast(tf.shape(q)[-1], wide))  # the core divides by it
    results = scaled_dot_product_attention(q * scale, k, v, mask, **options)
    return tuple(x if x is None else tf.cast(x, dtype) for x in results)


def bilinear_attention(q, k, v, kernel, mask=None, **options):
    """Attention with the score q^T W k, which lets queries and keys have different widths.

    softmax(Q W K^T) V: the score "general" of Luong et al. 2015, "Effective Approaches to
    Attention-based Neural Machine Translation", section 3.1. It equals `multiplicative_attention`
    of Q W and K.

    Args:
        q: float tensor (..., T, D).
        k: float tensor (..., S, D_k).
        v: float tensor (..., S, H_v).
        kernel: float tensor (D, D_k), W.
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        **options: `bias`, `causal`, `dropout`, `return_attention_weights`, `plan` and `jit`, see
            `scaled_dot_product_attention`.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype, or None in
        place of weights that are not wanted. The projection, scores and softmax are float32
        (float64 for float64).

    Raises:
        ValueError: If the kernel does not have shape (D, D_k); see also
            `scaled_dot_product_attention`.

    Example:
        >>> q, k = tf.constant([[1.0]]), tf.constant([[4.0, 0.0], [0.0, 4.0]])
        >>> print(bilinear_attention(q, k, k, tf.constant([[0.0, 1.0]]))[1].numpy().round(3))
        [[0.018 0.982]]
    """
    q, k, v, kernel = (tf.convert_to_tensor(x) for x in (q, k, v, kernel))
    check_inputs(q, k, v)
    if kernel.shape.rank == 2 and not kernel.shape[1:].is_compatible_with(k.shape[-1:]):
        raise ArgumentError(
            "kernel",
            f"shape ({q.shape[-1]}, {k.shape[-1]}), (width of q, width of k)",
            tuple(kernel.shape),
        )
    results = multiplicative_attention(project(q, kernel, "kernel"), k, v, mask, **options)
    return tuple(x if x is None else tf.cast(x, q.dtype) for x in results)


# Elements of a tile (r, t, s, U), 2 MiB in float32: the two in flight fit into the caches of two
# cores. The keys are limited too: the gradient adds (s, U) and (t, U) numbers for each tile, few
# if neither s nor t is small.
_MOST_ELEMENTS, _MOST_KEYS = 2**19, 256


class AdditiveTiles:
    """The inputs of one call of additive attention, and the loops over its tiles.

    A block of rows has r heads and t queries, and its scores of all keys are joined before the
    softmax. The backward pass computes each tile again from the maximum and the sum of the rows.
    """

    def __init__(self, q, k, v, vector, lead, blocked, causal):
        self.q, self.k, self.v, self.vector = q, k, v, vector
        self.blocked = None if blocked is None else merge_leading(blocked)
        self.blocked_at = None if blocked is None else places(blocked, lead)
        self.causal = causal
        (heads, length, units), source = shape_of(q), shape_of(k)[1]
        pairs = max(1, _MOST_ELEMENTS // units)
        keys = even_size(source, min(pairs, _MOST_KEYS))
        queries = even_size(length, pairs // keys)
        self.keys, self.queries = Blocks(source, keys), Blocks(length, queries)
        self.heads = Blocks(heads, even_size(heads, pairs // (keys * queries)))

    def forward(self, weights_wanted):
        """Compute the output and, if wanted, the weights."""
        widths = [self.v.shape[-1], 1, 1, *([self.keys.length] if weights_wanted else [])]

        def rows(n, *arrays):
            i, j = n // self.queries.count, n % self.queries.count
            scores = self._row_scores(i, j)  # (r, t, S)
            highest = tf.reduce_max(scores, -1, keepdims=True)
            powers = tf.exp(scores - highest)
            total = tf.reduce_sum(powers, -1, keepdims=True)
            output = tf.matmul(powers, self.heads.cut(self.v, 0, i)) / total  # (r, t, H_v)
            results = [output, highest, total, *([powers / total] if weights_wanted else [])]
            return [a.write(n, x) for a, x in zip(arrays, results, strict=True)]

        arrays = [self._row_array(width) for width in widths]
        arrays = over_blocks(self.heads.count * self.queries.count, rows, arrays)
        joined = (
            join_grid(array.stack(), self.heads, self.queries, width)
            for array, width in zip(arrays, widths, strict=True)
        )
        output, highest, total, *weights = joined
        return [output, *weights], [highest, total]

    def backward(self, results, sums, upstream):
        """Compute the gradients with respect to q, k, v and the vector."""
        # What the softmax subtracts from the gradient of each weight, (R, T, 1).
        pairs = zip(results, upstream, strict=True)
        means = sum(tf.reduce_sum(x * up, -1, keepdims=True) for x, up in pairs)
        up_output, *up_weights = upstream
        zero = tf.zeros((), self.q.dtype)

        def tile(n, dq, dk, dv, dvector):
            n, m = n // self.keys.count, n % self.keys.count
            i, j = n // self.queries.count, n % self.queries.count
            hidden = self._hidden(i, j, m)  # (r, t, s, U)
            blocked = self._blocked(i, j, m)
            scores = self._masked(self._scores(hidden), blocked)
            v = self._keys_of(self.v, i, m)
            up, mean, highest, total = (self._rows_of(x, i, j) for x in (up_output, means, *sums))
            weights = self._not_seen(tf.exp(scores - highest) / total, i, j, m)  # (r, t, s)
            dweights = tf.matmul(up, v, transpose_b=True)
            for more in up_weights:
                dweights += self.keys.cut(self._rows_of(more, i, j), -1, m)
            dscores = weights * (dweights - mean)
            if blocked is not None:  # a row without a free key has nonzero weights
                dscores = tf.where(blocked, zero, dscores)
            # The gradient of tanh, before the vector multiplies it.
            slope = tf.expand_dims(dscores, -1) * (1.0 - tf.square(hidden))  # (r, t, s, U)
            at = i * self.keys.count + m
            dq = dq.write(n, dq.read(n) + tf.reduce_sum(slope, 2))
            dk = dk.write(at, dk.read(at) + tf.reduce_sum(slope, 1))
            dv = dv.write(at, dv.read(at) + tf.matmul(weights, up, transpose_a=True))
            flat = tf.reshape(dscores, (1, -1)), tf.reshape(hidden, (-1, self.vector.shape[0]))
            return [dq, dk, dv, dvector + tf.matmul(*flat)[0]]

        units, width = self.vector.shape[0], self.v.shape[-1]
        state = [self._row_array(units), self._key_array(units), self._key_array(width)]
        state.append(tf.zeros_like(self.vector))
        count = self.heads.count * self.queries.count * self.keys.count
        dq, dk, dv, dvector = over_blocks(count, tile, state)
        dq = join_grid(dq.stack(), self.heads, self.queries, units) * self.vector
        dk = join_grid(dk.stack(), self.heads, self.keys, units) * self.vector
        return [dq, dk, join_grid(dv.stack(), self.heads, self.keys, width), dvector]

    def _hidden(self, i, j, m):
        """The hidden layer of one tile, (r, t, s, U)."""
        q, k = self._rows_of(self.q, i, j), self._keys_of(self.k, i, m)
        return tf.tanh(tf.expand_dims(q, 2) + tf.expand_dims(k, 1))

    def _scores(self, hidden):
        """(r, t, s, U) -> (r, t, s)."""
        flat = tf.reshape(hidden, (-1, self.vector.shape[0]))
        scores = tf.matmul(flat, tf.expand_dims(self.vector, 1))
        return tf.reshape(scores, shape_of(hidden)[:-1])

    def _row_scores(self, i, j):
        """The scores of some queries and all keys, (r, t, S)."""

        def tile(m, columns):
            scores = self._scores(self._hidden(i, j, m))
            scores = self._masked(scores, self._blocked(i, j, m))
            return [columns.write(m, tf.linalg.matrix_transpose(scores))]

        shape = self.heads.size, self.keys.size, self.queries.size
        columns = [zeros_array(self.q.dtype, self.keys.count, *shape)]
        [columns] = over_blocks(self.keys.count, tile, columns)
        return tf.linalg.matrix_transpose(self.keys.join(columns.stack()))

    def _blocked(self, i, j, m):
        """The mask of one tile, None or bool, broadcasting to (r, t, s)."""
        blocked = None
        if self.blocked is not None:
            rows = tf.gather(
                self.queries.cut(self.blocked, 1, j), self.heads.cut(self.blocked_at, 0, i)
            )
            blocked = self.keys.cut(rows, 2, m)
        if self.causal:
            future = self.keys.indices(m) > tf.expand_dims(self.queries.indices(j), 1)
            blocked = future if blocked is None else blocked | future
        return blocked

    def _masked(self, scores, blocked):
        if blocked is None:
            return scores
        return tf.where(blocked, tf.cast(BLOCKED_SCORE, scores.dtype), scores)

    def _not_seen(self, weights, i, j, m):
        """Zeros for pairs that an earlier tile has counted."""
        shapes = (self.heads, i, (-1, 1, 1)), (self.queries, j, (-1, 1)), (self.keys, m, (-1,))
        for blocks, at, shape in shapes:
            if not isinstance(blocks.overlap, int) or blocks.overlap:
                seen = tf.reshape(blocks.seen(at), shape)
                weights = tf.where(seen, tf.zeros((), weights.dtype), weights)
        return weights

    def _rows_of(self, x, i, j):
        return self.queries.cut(self.heads.cut(x, 0, i), 1, j)  # (r, t, width)

    def _keys_of(self, x, i, m):
        return self.keys.cut(self.heads.cut(x, 0, i), 1, m)  # (r, s, width)

    def _row_array(self, width):
        count = self.heads.count * self.queries.count
        return zeros_array(self.q.dtype, count, self.heads.size, self.queries.size, width)

    def _key_array(self, width):
        count = self.heads.count * self.keys.count
        return zeros_array(self.q.dtype, count, self.heads.size, self.keys.size, width)


def additive_attention(
    q,
    k,
    v,
    query_kernel,
    key_kernel,
    score_vector,
    mask=None,
    *,
    causal=False,
    return_attention_weights=True,
):
    """Attention with the score of a network with one hidden layer.

    score(q, k) = w . tanh(q W + k U), Bahdanau et al. 2015, "Neural Machine Translation by Jointly
    Learning to Align and Translate", section 3.1 and appendix A.1.2. The U numbers of each pair of
    a query and a key are computed for one tile of pairs at a time, forward and backward.

    Args:
        q: float tensor (..., T, D).
        k: float tensor (..., S, D_k).
        v: float tensor (..., S, H_v).
        query_kernel: float tensor (D, U), W.
        key_kernel: float tensor (D_k, U), U in the equation.
        score_vector: float tensor (U,), w.
        mask: None, float (1.0 = blocked) or bool (True = may attend), broadcasting to
            (..., T, S); see `functional.attention.masks.blocked_scores`.
        causal: bool, True also blocks key s for query t if s > t.
        return_attention_weights: False returns None in place of the weights; then no tensor has
            T x S elements.

    Returns:
        `(output, attention_weights)`: (..., T, H_v) and (..., T, S), both in q's dtype. The
        network, mask and softmax are float32 (float64 for float64).

    Raises:
        ValueError: If ranks, shapes or dtypes do not match, a mask does not broadcast, or it has
            an integer dtype.

    Example:
        >>> q, k = tf.constant([[0.0]]), tf.constant([[0.0], [9.0]])
        >>> one = tf.ones((1, 1))
        >>> output, weights = additive_attention(q, k, k, one, one, tf.constant([3.0]))
        >>> print(weights.numpy().round(3))
        [[0.047 0.953]]
    """
    q, k, v, vector = (tf.convert_to_tensor(x) for x in (q, k, v, score_vector))
    check_inputs(q, k, v)
    queries = project(q, query_kernel, "query_kernel")  # (..., T, U)
    keys = project(k, key_kernel, "key_kernel")  # (..., S, U)
    if not queries.shape[-1:] == keys.shape[-1:] == vector.shape:
        raise ArgumentError(
            "query_kernel, key_kernel, score_vector",
            "shapes (any, U), (any, U) and (U,)",
            f"widths {queries.shape[-1]} and {keys.shape[-1]}, and {vector.shape}",
        )
    scores_shape = q.shape[:-1].concatenate(k.shape[-2:-1])
    blocked = blocked_scores(mask, scores_shape)
    lead, wide = tf.shape(q)[:-2], wide_dtype(q)

    @tf.custom_gradient
    def attend(*inputs):
        tiles = AdditiveTiles(*inputs, lead, blocked, causal)
        results, sums = tiles.forward(return_attention_weights)
        return results, lambda *upstream: tiles.backward(results, sums, upstream)

    inputs = (merge_leading(tf.cast(x, wide)) for x in (queries, keys, v))
    results = attend(*inputs, tf.cast(vector, wide))
    shapes = (q.shape[:-1].concatenate(v.shape[-1:]), scores_shape)
    output, *weights = (
        _split_leading(tf.cast(x, q.dtype), lead, shape)
        for x, shape in zip(results, shapes, strict=False)
    )
    return output, weights[0] if return_attention_weights else None


def _split_leading(x, lead, shape):
    """The inverse of `merge_leading`."""
    x = tf.reshape(x, tf.concat([lead, tf.shape(x)[1:]], 0))
    x.set_shape(shape)
    return x
