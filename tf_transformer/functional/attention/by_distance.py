"""Terms of attention that depend on the distance between query and key.

Axes: T target (query) length, S source (key) length, H head width, D distances. Leading axes
(batch, heads) are "...".
"""

import typing

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.tensors import shape_of, sliced, wide_dtype


class ByDistance(tf.experimental.ExtensionType):
    """Terms that depend on the distance s - t between key s and query t, for the attention `bias`.

    Query t and key s have the score (q_t (k_s + keys[d]) / sqrt(H)) + scores[d] and the value
    v_s + values[d], where d is the column of their distance. The D = 2 m + 1 columns are the
    distances -m to m; longer ones are clipped. Every plan reads the tables block by block.
    """

    __name__ = "tf_transformer.ByDistance"
    # Not `tf.Tensor | None`, which TensorFlow does not read.
    scores: typing.Optional[tf.Tensor] = None  # noqa: UP045  (..., D), broadcasts to the heads
    keys: typing.Optional[tf.Tensor] = None  # noqa: UP045  (D, H)
    values: typing.Optional[tf.Tensor] = None  # noqa: UP045  (D, H_v)
    offset: int = 0  # position of key 0 minus the position of query 0
    has_gradient: bool = True  # False treats `scores` as constant, which saves time

    def __validate__(self):
        axes = {"scores": -1, "keys": 0, "values": 0}
        tables = {name: getattr(self, name) for name in axes}
        sizes = {name: x.shape[axes[name]] for name, x in tables.items() if x is not None}
        check(sizes, "scores, keys, values", "at least one table", "none")
        for name, size in sizes.items():
            if size is not None and (size < 3 or size % 2 == 0):
                raise ArgumentError(name, "an odd number of distances of at least 3, -m to m", size)
        if len(set(sizes.values())) > 1:
            expected = "tables of the same number of distances"
            raise ArgumentError(", ".join(sizes), expected, list(sizes.values()))

    @property
    def most(self):
        """The largest distance m, an int or a scalar tensor."""
        size = shape_of(self.tables[0])[0] if self.scores is None else shape_of(self.scores)[-1]
        return size // 2

    @property
    def tables(self):
        """The given tables among `keys` and `values`, as a list."""
        return [x for x in (self.keys, self.values) if x is not None]

    def tensor(self, q, num_keys):
        """All terms of the scores of queries (..., T, H) and S = `num_keys` keys, (..., T, S)."""
        total = 0.0
        if self.scores is not None:
            scores = self.scores if self.has_gradient else tf.stop_gradient(self.scores)
            total += spread(tf.expand_dims(scores, -2), self.offset, shape_of(q)[-2], num_keys)
        if self.keys is not None:
            total += spread(self._of_keys(q), self.offset, shape_of(q)[-2], num_keys)
        return total

    def at(self, q, distances):
        """`tensor` for given distances, int32 (T, S), of queries (B, N, T, H): (B, N, T, S)."""
        places, total = self._columns(distances), 0.0
        if self.scores is not None:
            total += tf.gather(self.scores, places, axis=-1)
        if self.keys is not None:
            of_keys = self._of_keys(q)
            shape = tf.concat([tf.shape(of_keys)[:-1], tf.shape(places)[-1:]], 0)
            total += tf.gather(of_keys, tf.broadcast_to(places, shape), batch_dims=3)
        return total

    def output_at(self, weights, distances):
        """Terms of the values for weights (B, N, T, S) and distances (T, S): (B, N, T, H_v)."""
        values = tf.gather(self.values, self._columns(distances))  # (T, S, H_v)
        return tf.einsum("bnts,tsh->bnth", weights, tf.cast(values, weights.dtype))

    def output(self, weights):
        """The terms of the values for attention weights (..., T, S): (..., T, H_v)."""
        values = tf.cast(self.values, weights.dtype)
        return tf.matmul(collect(weights, self.offset, self.most), values)

    def mean_values(self, num_queries, num_keys):
        """The terms of the values, averaged over all keys, (num_queries, H_v); 0 without any."""
        if self.values is None:
            return tf.zeros(())
        shares = shares_of_distances(self.offset, num_queries, num_keys, self.most)
        return tf.matmul(tf.cast(shares, self.values.dtype), self.values)

    def from_query(self, start):
        """The terms for the queries from `start` on."""
        tables = self.scores, self.keys, self.values
        return ByDistance(*tables, self.offset - start, self.has_gradient)

    def within(self, distance):
        """The terms for keys at most `distance` away, without columns for farther ones."""
        if not isinstance(self.most, int) or self.most <= distance:
            return self
        columns = self._columns(self.offset + tf.range(-distance, distance + 1))
        tables = (
            None if x is None else _gather(x, columns, axis)
            for x, axis in ((self.scores, -1), (self.keys, -2), (self.values, -2))
        )
        return ByDistance(*tables, 0, self.has_gradient)

    def _columns(self, distances):
        return tf.clip_by_value(distances, -self.most, self.most) + self.most

    def _of_keys(self, q):
        dtype = wide_dtype(q)
        scale = tf.math.rsqrt(tf.cast(tf.shape(q)[-1], dtype))
        return tf.matmul(tf.cast(q, dtype) * scale, tf.cast(self.keys, dtype), transpose_b=True)


def terms_of(bias, dtype):
    """The tensors of a bias by name, with and without a gradient, and its offset."""
    if not isinstance(bias, ByDistance):
        return {} if bias is None else {"bias": tf.cast(bias, dtype)}, {}, 0
    scores = None if bias.scores is None else tf.expand_dims(bias.scores, -2)  # (..., 1, D)
    terms = {"scores": scores, "key_table": bias.keys, "value_table": bias.values}
    terms = {name: tf.cast(x, dtype) for name, x in terms.items() if x is not None}
    is_fixed = bias.scores is not None and not bias.has_gradient
    return terms, {"scores": terms.pop("scores")} if is_fixed else {}, bias.offset


# Half of a blocked score: with a lower bias, such as -inf, a blocked key would outweigh a free one.
_LEAST = -5e8


def limited(bias):
    """A bias tensor, or the scores of `ByDistance`, of at least -5e8 or what the dtype can hold."""
    if not isinstance(bias, ByDistance):
        return _limited(bias)
    if bias.scores is None:
        return bias
    tables = _limited(bias.scores), bias.keys, bias.values
    return ByDistance(*tables, bias.offset, bias.has_gradient)


@tf.custom_gradient
def _limited(x):
    # The gradient passes unchanged, which saves time: the weight of a key with such a bias is 0.
    least = tf.cast(max(_LEAST, float(x.dtype.min)), x.dtype)
    return tf.maximum(x, least), lambda upstream: upstream


def shares_of_distances(offset, num_queries, num_keys, most):
    """How often each distance occurs in the row of a query, divided by the number of keys."""
    distances = tf.range(-most, most + 1)
    at = tf.expand_dims(tf.range(num_queries) - offset, 1) + distances  # (T, D), the key there
    counts = tf.cast((at >= 0) & (at < num_keys), tf.int32)
    counts = tf.where(distances == -most, tf.clip_by_value(at + 1, 0, num_keys), counts)
    counts = tf.where(distances == most, tf.clip_by_value(num_keys - at, 0, num_keys), counts)
    return tf.cast(counts, tf.float32) / tf.cast(num_keys, tf.float32)


def spread(table, offset, num_queries, num_keys):
    """Read a table of distances for each pair of a query and a key."""
    most = shape_of(table)[-1] // 2

    @tf.custom_gradient
    def read(table):
        lead = tf.shape(table)[:-2]
        distances = _distances(offset, num_queries, num_keys)
        columns = tf.gather(table, tf.clip_by_value(distances, -most, most) + most, axis=-1)
        window = num_queries + num_keys
        columns = tf.broadcast_to(columns, tf.concat([lead, [num_queries, window]], 0))
        # Each row starts one column further left than the one above: a shift of the flat order.
        flat = tf.reshape(columns, tf.concat([lead, [num_queries * window]], 0))
        flat = flat[..., num_queries - 1 : num_queries - 1 + num_queries * (window - 1)]
        shifted = tf.reshape(flat, tf.concat([lead, [num_queries, window - 1]], 0))

        def gradient(upstream):
            return collect(upstream, offset, most, together=table.shape[-2] == 1)

        return shifted[..., :num_keys], gradient

    return read(table)


def collect(x, offset, most, together=False):
    """Sum a matrix over the pairs of each distance; the transpose of `spread`."""
    num_queries, num_keys = shape_of(x)[-2:]
    lead, window = shape_of(x)[:-2], num_queries + num_keys
    x = _pad(x, 0, num_queries - 1)  # (..., T, T + S - 1)
    flat = _pad(tf.reshape(x, (*lead, num_queries * (window - 1))), num_queries - 1, 1)
    columns = tf.reshape(flat, (*lead, num_queries, window))  # one for each distance
    if together:
        columns = tf.reduce_sum(columns, -2, keepdims=True)
    distances = _distances(offset, num_queries, num_keys)

    def total(chosen):
        chosen = tf.where(chosen, columns, tf.zeros((), columns.dtype))
        return tf.reduce_sum(chosen, -1, keepdims=True)

    inner = 2 * most - 1  # the distances that are not at an end
    at = tf.clip_by_value(inner + 1 - most - distances[0], 0, window + inner)
    middle = sliced(_pad(columns, inner, inner), -1, at, inner)
    return tf.concat([total(distances <= -most), middle, total(distances >= most)], -1)


def _distances(offset, num_queries, num_keys):
    """The distances of the block, and one more, in ascending order, (T + S,)."""
    return offset - (num_queries - 1) + tf.range(num_queries + num_keys)


def _gather(x, at, axis):
    """`tf.gather` with a dense gradient, which it has on every axis but the first."""
    return tf.squeeze(tf.gather(tf.expand_dims(x, 0), at, axis=axis), 0)


def _pad(x, before, after):
    """Pad the last axis with zeros."""
    return tf.pad(x, [*([0, 0] for _ in x.shape[:-1]), [before, after]])
