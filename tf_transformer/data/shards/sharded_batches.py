"""Batches of prepared pairs, shard after shard.

Axes: B batch, L bucket length.
"""

import concurrent.futures

import numpy as np

from tf_transformer.data.batches import BucketedBatches
from tf_transformer.errors import ArgumentError


class ShardedBatches:
    """Prepared pairs, grouped by length, as a `tf.data` pipeline for `model.fit`.

    Like `BucketedBatches`, but two shards are in memory at a time. A pair's shard is random, so
    that the order of an epoch is random over all pairs: that of the shards, of the pairs in a shard
    and of its batches. It depends on `seed` and the epoch alone.

    Args:
        pairs: `PreparedPairs`.
        start_id, end_id, lengths, tokens_per_batch, seed: see `BucketedBatches`.

    Raises:
        ValueError: If no pair fits; see also `BucketedBatches`.

    Example:
        >>> from tf_transformer.data import PairSource, PreparedPairs, prepare_pairs
        >>> from pathlib import Path
        >>> _ = Path("pairs.tsv").write_text("".join(f"a {n}\\tb {n}\\n" for n in range(500)))
        >>> path = prepare_pairs(PairSource(tsv="pairs.tsv"), "prepared", vocab_size=300)
        >>> pairs = PreparedPairs(path)
        >>> batches = ShardedBatches(
        ...     pairs, start_id=1, end_id=2, lengths=(16,), tokens_per_batch=64
        ... )
        >>> (source, target_in), target_out = next(batches.epoch(0))
        >>> source.shape, batches.steps_per_epoch == -(-len(pairs) // 4)
        ((4, 16), True)
    """

    def __init__(self, pairs, *, start_id, end_id, lengths, tokens_per_batch, seed=0):
        self.pairs = pairs
        self.seed = seed
        self._settings = {
            "start_id": start_id,
            "end_id": end_id,
            "lengths": lengths,
            "tokens_per_batch": tokens_per_batch,
        }
        self._batch_sizes = [max(1, tokens_per_batch // length) for length in lengths]
        counts = np.zeros((len(pairs.shards), len(lengths) + 1), np.int64)  # the last: too long
        for shard, row in zip(pairs.shards, counts, strict=True):
            for size, rows in shard["sizes"].items():
                row[np.searchsorted(lengths, size + 1)] += rows
        self.dropped = int(counts[:, -1].sum())
        self._counts = counts[:, :-1]
        if not self._counts.any():
            raise ArgumentError(
                "lengths",
                f"a pair of at most {lengths[-1] - 1} tokens per side",
                f"{len(pairs)} pairs, all longer",
            )

    @property
    def shapes(self):
        """The shapes (B, L) that occur, one for each non-empty bucket."""
        sizes = zip(self._batch_sizes, self._settings["lengths"], strict=True)
        return [shape for shape, is_used in zip(sizes, self._counts.any(0), strict=True) if is_used]

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return int(self._steps().sum())

    def _steps(self):
        """How many batches each shard has."""
        return (-(-self._counts // self._batch_sizes)).sum(1)

    def epoch(self, epoch, first_step=0):
        """Yield the batches of one epoch, in the order of that epoch.

        Args:
            epoch: int, 0 for the first.
            first_step: int, the number of batches to skip; skipped shards are not read.

        Yields:
            `((source, target_in), target_out)`, int32 arrays (B, L).

        Raises:
            ValueError: If a shard is damaged.
        """
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.pairs.shards))
        steps = self._steps()[order]
        ends = np.cumsum(steps)
        begun = int(np.searchsorted(ends, first_step, side="right"))
        left = [int(number) for number in order[begun:] if self._steps()[number]]
        skipped = first_step - int(ends[begun] - steps[begun]) if left else 0
        with concurrent.futures.ThreadPoolExecutor(1) as reader:
            shards = (reader.submit(self._shard, number) for number in left)
            following = next(shards, None)
            while following is not None:
                batches, following = following.result(), next(shards, None)
                yield from batches.epoch(epoch, skipped)
                skipped = 0

    dataset = BucketedBatches.dataset  # over the epochs of this class

    def _shard(self, number):
        """The batches of a shard, whose order differs from those of other shards."""
        seed = int(np.random.SeedSequence((self.seed, number)).generate_state(1)[0])
        return BucketedBatches(*self.pairs.read(number), seed=seed, **self._settings)
