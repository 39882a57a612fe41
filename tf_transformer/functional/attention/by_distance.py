"""What attention adds because of how far a key is from a query.

Axes: T target (query) length, S source (key) length, H head width, D distances. Leading axes
(batch, heads) are "...".
"""

import typing

import tensorflow as tf

from tf_transformer.functional.attention.blocks import shape_of


class ByDistance(tf.experimental.ExtensionType):
    """Terms of the distance s - t between key s and query t, for the `bias` of attention.

    The distances -m to m have one column each, and longer ones that of -m or m. The tables are
    linear in T, and every plan reads them block by block.

    Args:
        scores: float tensor (..., T, D) or, for all queries alike, (..., 1, D), with D = 2 m + 1;
            the leading axes broadcast to those of the scores.
        values: None, or a float tensor (D, H_v), added to the values.
        first: int, position of key 0 minus that of query 0.
        has_gradient: False treats `scores` as constant, which saves time.

    Raises:
        ValueError: If D is not an odd number of at least 3, or is not the same in both.

    Example:
        >>> nearer_first = ByDistance(tf.constant([[-1.0, 0.0, -1.0]]))
        >>> nearer_first.tensor(2, 3).numpy().tolist()
        [[0.0, -1.0, -1.0], [-1.0, 0.0, -1.0]]
    """

    __name__ = "tf_transformer.ByDistance"
    scores: tf.Tensor
    values: typing.Optional[tf.Tensor] = None  # noqa: UP045, which TensorFlow does not read
    first: int = 0
    has_gradient: bool = True

    def __validate__(self):
        distances = self.scores.shape[-1]
        if distances is not None and (distances < 3 or distances % 2 == 0):
            raise ValueError(
                f"scores: expected an odd number of distances of at least 3, -m to m, got shape "
                f"{tuple(self.scores.shape)}."
            )
        if self.values is not None and self.values.shape[0] != distances:
            raise ValueError(
                f"values: expected one row for each of the {distances} distances of scores, got "
                f"shape {tuple(self.values.shape)}."
            )

    def tensor(self, queries, keys):
        """All terms of the scores, (..., queries, keys)."""
        scores = self.scores if self.has_gradient else tf.stop_gradient(self.scores)
        return spread(scores, self.first, queries, keys)

    def at(self, distances):
        """Terms of the scores for given distances, int32 (T, S): (..., T, S)."""
        most = shape_of(self.scores)[-1] // 2
        places = tf.clip_by_value(distances, -most, most) + most
        if self.scores.shape[-2] == 1:
            return tf.gather(self.scores[..., 0, :], places, axis=-1)
        shape = tf.concat([tf.shape(self.scores)[:-2], tf.shape(places)], 0)
        places = tf.broadcast_to(places, shape)
        return tf.gather(self.scores, places, batch_dims=self.scores.shape.rank - 1)

    def output_at(self, weights, distances):
        """Terms of the values for weights (B, N, T, S) and distances (T, S): (B, N, T, H_v)."""
        most = self.values.shape[0] // 2
        values = tf.gather(self.values, tf.clip_by_value(distances, -most, most) + most)
        return tf.einsum("bnts,tsh->bnth", weights, tf.cast(values, weights.dtype))

    def output(self, weights):
        """The terms of the values for attention weights (..., T, S): (..., T, H_v)."""
        values = tf.cast(self.values, weights.dtype)
        return tf.matmul(collect(weights, self.first, values.shape[0] // 2), values)

    def mean_values(self, queries, keys):
        """The terms of the values, averaged over all keys, (queries, H_v); 0 without any."""
        if self.values is None:
            return tf.zeros(())
        shares = shares_of_distances(self.first, queries, keys, self.values.shape[0] // 2)
        return tf.matmul(tf.cast(shares, self.values.dtype), self.values)

    def cast(self, dtype):
        """The same tables in another dtype."""
        values = None if self.values is None else tf.cast(self.values, dtype)
        return ByDistance(tf.cast(self.scores, dtype), values, self.first, self.has_gradient)

    def part(self, start, size):
        """The same for the queries `start` to `start + size - 1`."""
        rows = self.scores
        rows = rows if rows.shape[-2] == 1 else rows[..., start : start + size, :]
        return ByDistance(rows, self.values, self.first - start, self.has_gradient)


def shares_of_distances(first, queries, keys, most):
    """How often each distance occurs in the row of a query, divided by the number of keys.

    Args:
        first, queries, keys, most: see `spread` and `collect`.

    Returns:
        float32 (T, D).

    Example:
        >>> shares_of_distances(0, 2, 4, 1).numpy().tolist()
        [[0.0, 0.25, 0.75], [0.25, 0.25, 0.5]]
    """
    distances = tf.range(-most, most + 1)
    at = tf.expand_dims(tf.range(queries) - first, 1) + distances  # (T, D), the key there
    counts = tf.cast((at >= 0) & (at < keys), tf.int32)
    counts = tf.where(distances == -most, tf.clip_by_value(at + 1, 0, keys), counts)
    counts = tf.where(distances == most, tf.clip_by_value(keys - at, 0, keys), counts)
    return tf.cast(counts, tf.float32) / tf.cast(keys, tf.float32)


def spread(table, first, queries, keys):
    """Read a table of distances for each pair of a query and a key.

    Args:
        table: float tensor (..., T, D) or (..., 1, D), D = 2 m + 1, for the distances -m to m.
        first: int or scalar int32 tensor, position of the first key minus that of the first query.
        queries, keys: int or scalar int32 tensors, T and S.

    Returns:
        (..., T, S): column clip(first + s - t, -m, m) + m of row t of the table.

    Example:
        >>> spread(tf.constant([[3.0, 5.0, 7.0]]), 0, 2, 2).numpy().tolist()
        [[5.0, 7.0], [3.0, 5.0]]
    """
    most = shape_of(table)[-1] // 2

    @tf.custom_gradient
    def read(table):
        lead = tf.shape(table)[:-2]
        distances = _distances(first, queries, keys)
        columns = tf.gather(table, tf.clip_by_value(distances, -most, most) + most, axis=-1)
        window = queries + keys
        columns = tf.broadcast_to(columns, tf.concat([lead, [queries, window]], 0))
        # Each row starts one column further left than the one above: a shift of the flat order.
        flat = tf.reshape(columns, tf.concat([lead, [queries * window]], 0))
        flat = flat[..., queries - 1 : queries - 1 + queries * (window - 1)]
        shifted = tf.reshape(flat, tf.concat([lead, [queries, window - 1]], 0))

        def gradient(upstream):
            return collect(upstream, first, most, together=table.shape[-2] == 1)

        return shifted[..., :keys], gradient

    return read(table)


def collect(x, first, most, together=False):
    """Sum a matrix over the pairs of each distance; the transpose of `spread`.

    Args:
        x: float tensor (..., T, S).
        first: see `spread`.
        most: int, m.
        together: bool, whether to sum over the queries too.

    Returns:
        (..., T, D), D = 2 m + 1, or (..., 1, D).

    Example:
        >>> collect(tf.constant([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]), 0, 1, True).numpy().tolist()
        [[8.0, 17.0, 38.0]]
    """
    queries, keys = shape_of(x)[-2:]
    lead, window = shape_of(x)[:-2], queries + keys
    x = _pad(x, 0, queries - 1)  # (..., T, T + S - 1)
    flat = _pad(tf.reshape(x, (*lead, queries * (window - 1))), queries - 1, 1)
    columns = tf.reshape(flat, (*lead, queries, window))  # one for each distance
    if together:
        columns = tf.reduce_sum(columns, -2, keepdims=True)
    distances = _distances(first, queries, keys)

    def total(chosen):
        chosen = tf.where(chosen, columns, tf.zeros((), columns.dtype))
        return tf.reduce_sum(chosen, -1, keepdims=True)

    inner = 2 * most - 1  # the distances that are not at an end
    at = tf.clip_by_value(inner + 1 - most - distances[0], 0, window + inner)
    sizes = [*shape_of(columns)[:-1], inner]
    middle = tf.slice(_pad(columns, inner, inner), [*(0 for _ in sizes[:-1]), at], sizes)
    return tf.concat([total(distances <= -most), middle, total(distances >= most)], -1)


def _distances(first, queries, keys):
    """The distances of the block, and one more, in ascending order, (T + S,)."""
    return first - (queries - 1) + tf.range(queries + keys)


def _pad(x, before, after):
    """Pad the last axis with zeros."""
    return tf.pad(x, [*([0, 0] for _ in x.shape[:-1]), [before, after]])
