"""Batches of fixed shapes: every sentence padded to the length of its bucket.

Axes: B batch, L bucket length.
"""

import numpy as np

from tf_transformer.data.epochs_dataset import epochs_dataset


class BucketedBatches:
    """Pairs of token ids, grouped by length, as a `tf.data` pipeline for `model.fit`.

    Each pair goes into the first bucket that holds both its sides. All batches of a bucket have the
    same shape (B, L); the last one is filled with padding rows. The number of shapes, and thus of
    traced or compiled programs, is the number of buckets. The order of epoch e depends only on
    `seed` and e, so that an interrupted run can resume at any step with the same batches.

    Args:
        sources, targets: lists of lists of int token ids, without start or end.
        start_id, end_id: int, ids added before and after.
        lengths: increasing ints, the bucket lengths L, including the start or end token.
        tokens_per_batch: int; a bucket's batch has tokens_per_batch / L rows, at least 1.
        seed: int, seed for shuffling.

    Raises:
        ValueError: If the numbers of sources and targets differ, the bucket lengths do not
            increase, or no pair fits.

    Example:
        >>> batches = BucketedBatches(
        ...     [[5, 6]], [[7]], start_id=1, end_id=2, lengths=(4,), tokens_per_batch=4
        ... )
        >>> (source, target_in), target_out = next(batches.epoch(0))
        >>> source.tolist(), target_in.tolist(), target_out.tolist()
        ([[5, 6, 2, 0]], [[1, 7, 0, 0]], [[7, 2, 0, 0]])
    """

    def __init__(self, sources, targets, *, start_id, end_id, lengths, tokens_per_batch, seed=0):
        if len(sources) != len(targets):
            raise ValueError(
                f"sources, targets: expected one target for each source, got {len(sources)} "
                f"sources and {len(targets)} targets."
            )
        if not lengths or list(lengths) != sorted(set(lengths)) or lengths[0] < 1:
            raise ValueError(f"lengths: expected increasing positive ints, got {lengths}.")
        self.start_id = start_id
        self.end_id = end_id
        self.seed = seed
        longest = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        home = np.searchsorted(lengths, longest)  # (pairs,), index of the first L >= length
        self.dropped = int(np.sum(home == len(lengths)))
        self._buckets = []
        for i, length in enumerate(lengths):
            rows = np.flatnonzero(home == i)
            if len(rows):
                batch_size = max(1, tokens_per_batch // length)
                matrices = self._matrices([(sources[r], targets[r]) for r in rows], length)
                self._buckets.append((batch_size, matrices))
        if not self._buckets:
            raise ValueError(
                f"sources, targets: expected a pair of at most {lengths[-1] - 1} tokens per side, "
                f"got {len(sources)} pairs, all longer."
            )

    @property
    def shapes(self):
        """The shapes (B, L) that occur, one for each non-empty bucket."""
        return [(batch_size, matrices[0].shape[1]) for batch_size, matrices in self._buckets]

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return sum(-(-len(matrices[0]) // batch_size) for batch_size, matrices in self._buckets)

    def epoch(self, epoch):
        """Yield the batches of one epoch, in the order of that epoch.

        Args:
            epoch: int, 0 for the first.

        Yields:
            `((source, target_in), target_out)`, int32 arrays (B, L).
        """
        rng = np.random.default_rng((self.seed, epoch))
        batches = []
        for batch_size, matrices in self._buckets:
            order = rng.permutation(len(matrices[0]))
            for start in range(0, len(order), batch_size):
                batches.append((batch_size, matrices, order[start : start + batch_size]))
        for i in rng.permutation(len(batches)):
            batch_size, matrices, rows = batches[i]
            fill = ((0, batch_size - len(rows)), (0, 0))
            source, target_in, target_out = (np.pad(m[rows], fill) for m in matrices)
            yield (source, target_in), target_out

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """The same batches as a `tf.data.Dataset`, epoch after epoch.

        Args:
            first_epoch, first_step, epochs: see `epochs_dataset`.

        Returns:
            `tf.data.Dataset` of `((source, target_in), target_out)`, int32 (B, L).
        """
        import tensorflow as tf

        ids = tf.TensorSpec((None, None), tf.int32)
        return epochs_dataset(self, ((ids, ids), ids), first_epoch, first_step, epochs)

    def _matrices(self, pairs, length):
        shape = (len(pairs), length)
        source, target_in, target_out = (np.zeros(shape, np.int32) for _ in range(3))
        for row, (source_ids, target_ids) in enumerate(pairs):
            source[row, : len(source_ids) + 1] = [*source_ids, self.end_id]
            target_in[row, : len(target_ids) + 1] = [self.start_id, *target_ids]
            target_out[row, : len(target_ids) + 1] = [*target_ids, self.end_id]
        return source, target_in, target_out
