"""A worker's rows of every batch.

Axes: B rows of the whole batch, W workers.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.data.epochs_dataset import epochs_dataset


class WorkerShare:
    """Every W-th row of each batch, with rows of padding where another worker has one more.

    So together the workers have every row once, the same number of steps and equal shapes. Rows of
    padding also make the share divisible by the replicas of a strategy, which Keras needs.

    Args:
        batches: object with `epoch(number, first_step)`, whose batches are nested tuples of arrays
            (B, ...) in which zeros are padding, and `steps_per_epoch`, such as `BucketedBatches`.
        workers: `Workers`.
        replicas: int, the replicas of a worker, which share its rows.

    Example:
        >>> class Batches:
        ...     steps_per_epoch = 1
        ...     def epoch(self, number, first_step=0):
        ...         yield (np.array([[5], [6], [7]]), np.array([[8], [9], [4]]))
        >>> from tf_transformer.training.distribution.workers import Workers
        >>> share = WorkerShare(Batches(), Workers(index=1, count=2))
        >>> [[side.tolist() for side in batch] for batch in share.epoch(0)]
        [[[[6], [0]], [[9], [0]]]]
    """

    def __init__(self, batches, workers, replicas=1):
        self.batches = batches
        self.workers = workers
        self.replicas = replicas

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return self.batches.steps_per_epoch

    def epoch(self, epoch, first_step=0):
        """Yield the shares of an epoch's batches.

        Args:
            epoch, first_step: see `Buckets.epoch`.

        Yields:
            The same nested tuples, with arrays (R ceil(B / W / R), ...) for R replicas.
        """
        for batch in self.batches.epoch(epoch, first_step):
            yield tf.nest.map_structure(self._rows, batch)

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """The shares as a `tf.data.Dataset`.

        Args:
            first_epoch, first_step, epochs: see `epochs_dataset`.

        Returns:
            `tf.data.Dataset`.
        """
        signature = self.batches.dataset().element_spec
        return epochs_dataset(self, signature, first_epoch, first_step, epochs)

    def _rows(self, array):
        count = self.workers.count
        own = array[self.workers.index :: count]
        missing = -(-len(array) // (count * self.replicas)) * self.replicas - len(own)
        return np.pad(own, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
