"""Rows grouped by length into batches of fixed shapes.

Axes: B batch, L bucket length.
"""

import numpy as np

from tf_transformer.errors import ArgumentError


class Buckets:
    """Base class of batches: every row is padded to the length of the first bucket that holds it.

    All batches of a bucket have the same shape (B, L); the last one is filled with padding rows.
    The number of shapes, and thus of traced or compiled programs, is the number of buckets. The
    order of epoch e depends only on `seed` and e, so that an interrupted run can resume at any step
    with the same batches.

    Args:
        sizes: ints, the length of each row.
        matrices: function `(rows, length) -> arrays`: the arrays, int32 (rows, L), 0 = padding, of
            the rows with these indices.
        lengths: increasing ints, the bucket lengths L.
        tokens_per_batch: int; a bucket's batch has tokens_per_batch / L rows, at least 1.
        seed: int, seed for shuffling.

    Raises:
        ValueError: If the bucket lengths do not increase.

    Example:
        >>> rows = [[5, 6], [7]]
        >>> def matrices(indices, length):
        ...     return (np.array([rows[n] + [0] * (length - len(rows[n])) for n in indices]),)
        >>> buckets = Buckets([2, 1], matrices, lengths=(1, 3), tokens_per_batch=3)
        >>> sorted(batch.tolist() for batch, in buckets.epoch(0))
        [[[5, 6, 0]], [[7], [0], [0]]]
    """

    def __init__(self, sizes, matrices, *, lengths, tokens_per_batch, seed=0):
        if not lengths or list(lengths) != sorted(set(lengths)) or lengths[0] < 1:
            raise ArgumentError("lengths", "increasing positive ints", lengths)
        self.seed = seed
        home = np.searchsorted(lengths, sizes)  # (rows,), index of the first L >= size
        self.dropped = int(np.sum(home == len(lengths)))
        self._buckets = []
        for i, length in enumerate(lengths):
            rows = np.flatnonzero(home == i)
            if len(rows):
                batch_size = max(1, tokens_per_batch // length)
                self._buckets.append((batch_size, rows, matrices(rows, length)))

    @property
    def shapes(self):
        """The shapes (B, L) that occur, one for each non-empty bucket."""
        return [(batch_size, matrices[0].shape[1]) for batch_size, _, matrices in self._buckets]

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return sum(-(-len(rows) // batch_size) for batch_size, rows, _ in self._buckets)

    def epoch(self, epoch, first_step=0):
        """Yield the batches of one epoch, in the order of that epoch.

        Args:
            epoch: int, 0 for the first.
            first_step: int, the number of batches to skip.

        Yields:
            Tuples of arrays (B, L).
        """
        for batch_size, _, matrices, chosen in self._batches(epoch)[first_step:]:
            fill = ((0, batch_size - len(chosen)), (0, 0))
            yield tuple(np.pad(matrix[chosen], fill) for matrix in matrices)

    def rows(self, epoch, step):
        """The rows of one batch.

        Args:
            epoch, step: ints, 0 for the first.

        Returns:
            int array (at most B,), indices of `sizes`.
        """
        _, rows, _, chosen = self._batches(epoch)[step]
        return rows[chosen]

    def _batches(self, epoch):
        """The batches of an epoch in order: `(batch_size, rows, matrices, chosen rows)`."""
        rng = np.random.default_rng((self.seed, epoch))
        batches = []
        for batch_size, rows, matrices in self._buckets:
            order = rng.permutation(len(rows))
            for start in range(0, len(order), batch_size):
                batches.append((batch_size, rows, matrices, order[start : start + batch_size]))
        return [batches[i] for i in rng.permutation(len(batches))]
