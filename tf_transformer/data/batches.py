"""Batches of fixed shapes: every sentence padded to the length of its bucket.

Axes: B batch, L bucket length.
"""

import numpy as np

from tf_transformer.data.buckets import Buckets
from tf_transformer.data.epochs_dataset import epochs_dataset
from tf_transformer.errors import ArgumentError


class BucketedBatches(Buckets):
    """Pairs of token ids, grouped by length, as a `tf.data` pipeline for `model.fit`.

    Each pair goes into the first bucket that holds both its sides. For batches and their order see
    `Buckets`.

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
            raise ArgumentError(
                "sources, targets",
                "one target for each source",
                f"{len(sources)} sources and {len(targets)} targets",
            )
        self.start_id = start_id
        self.end_id = end_id
        super().__init__(
            [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)],
            lambda rows, length: self._matrices([(sources[r], targets[r]) for r in rows], length),
            lengths=lengths,
            tokens_per_batch=tokens_per_batch,
            seed=seed,
        )
        if not self._buckets:
            raise ArgumentError(
                "sources, targets",
                f"a pair of at most {lengths[-1] - 1} tokens per side",
                f"{len(sources)} pairs, all longer",
            )

    def epoch(self, epoch, first_step=0):
        """Yield the batches of one epoch, in the order of that epoch.

        Args:
            epoch, first_step: see `Buckets.epoch`.

        Yields:
            `((source, target_in), target_out)`, int32 arrays (B, L).
        """
        for source, target_in, target_out in super().epoch(epoch, first_step):
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
