"""A worker's rows of every batch.

Axes: B rows of the whole batch, W workers, R replicas of a worker.
"""

import tensorflow as tf

from tf_transformer.data.prefetched import prefetched
from tf_transformer.distribution.workers import current_workers


class WorkerShare:
    """Batches of which this worker has a share, see `own_rows`.

    Args:
        batches: object with `steps_per_epoch` and `dataset(first_epoch, first_step, epochs)`, such
            as `BucketedBatches`.

    Example:
        >>> from tf_transformer.data import BucketedBatches
        >>> batches = BucketedBatches(
        ...     [[5]], [[7]], start_id=1, end_id=2, lengths=(4,), tokens_per_batch=4
        ... )
        >>> WorkerShare(batches).steps_per_epoch
        1
    """

    def __init__(self, batches):
        self._batches = batches

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return self._batches.steps_per_epoch

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """The shares as a `tf.data.Dataset`.

        Args:
            first_epoch, first_step, epochs: see `epochs_dataset`.

        Returns:
            `tf.data.Dataset`.
        """
        return own_rows(self._batches.dataset(first_epoch, first_step, epochs))


def own_rows(dataset, workers=None, replicas=None):
    """Every W-th row of each batch, with rows of padding where another worker has one more.

    So together the workers have every row once, the same number of steps and equal shapes. Rows of
    padding also make the share divisible by the replicas of a strategy, which Keras needs.

    Args:
        dataset: `tf.data.Dataset` of nested tensors, see `pad_rows`.
        workers: None for the current ones, or `Workers`.
        replicas: None for those of the current strategy, or int.

    Returns:
        `tf.data.Dataset` of the same structure, with R ceil(B / W / R) rows.

    Example:
        >>> from tf_transformer.distribution.workers import Workers
        >>> dataset = tf.data.Dataset.from_tensors([[5], [6], [7]])
        >>> [batch.numpy().tolist() for batch in own_rows(dataset, Workers(index=1, count=2))]
        [[[6], [0]]]
    """
    workers = workers or current_workers()
    replicas = replicas or tf.distribute.get_strategy().num_replicas_in_sync
    parts = workers.count * replicas
    if parts == 1:
        return dataset

    def rows(tensor):
        return pad_rows(tensor, parts)[workers.index :: workers.count]

    return prefetched(dataset.map(lambda *batch: tf.nest.map_structure(rows, _one(batch))))


def pad_rows(tensor, multiple):
    """Add rows that are padding until their number is a multiple.

    Args:
        tensor: classes (B,), integers, whose padding is -1; or anything else (B, ...), with 0.
        multiple: int.

    Returns:
        Tensor of the same dtype.

    Example:
        >>> pad_rows(tf.constant([4, 5, 6]), 2).numpy().tolist()
        [4, 5, 6, -1]
    """
    rank = tensor.shape.rank
    missing = -tf.shape(tensor)[0] % multiple
    return tf.pad(
        tensor, [(0, missing)] + [(0, 0)] * (rank - 1), constant_values=-1 if rank == 1 else 0
    )


def _one(batch):
    """What `map` was given: it passes the parts of a tuple one by one."""
    return batch if len(batch) > 1 else batch[0]
