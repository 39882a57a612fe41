"""A worker's rows of every batch, and means over the labels of all workers and replicas.

Axes: B rows of the whole batch, W workers, R replicas of a worker.
"""

import contextlib
import contextvars

import tensorflow as tf

from tf_transformer.data.batches import prefetched
from tf_transformer.distribution.workers import current_workers
from tf_transformer.functional.labels import exact_labels, padding_label

_replicas_apart = contextvars.ContextVar("replicas apart", default=False)


class WorkerShare:
    """This worker's share of batches, see `own_rows`.

    Args:
        batches: object with `steps_per_epoch` and `dataset(first_epoch, first_step, epochs)`, such
            as `BucketedBatches`.

    Example:
        >>> from tf_transformer.data import BucketedBatches
        >>> sizes = {"lengths": (4,), "tokens_per_batch": 4}
        >>> batches = BucketedBatches([[5]], [[7]], start_id=1, end_id=2, **sizes)
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
        """Return the shares as a `tf.data.Dataset`; see `Buckets` for the arguments."""
        return own_rows(self._batches.dataset(first_epoch, first_step, epochs))


def own_rows(dataset, workers=None, replicas=None):
    """Every W-th row of each batch, with a row of padding if another worker has one more.

    Together the workers have every row once, the same number of steps and equal shapes. Rows of
    padding also make the share divisible by the replicas of a strategy, which Keras needs. Losses
    and metrics of this library leave out their labels.

    Args:
        dataset: `tf.data.Dataset` of `(x, y)`, `(x, y, sample_weight)` or only x, as for `fit`.
        workers: None for the current ones, or `Workers`.
        replicas: None for the number in the current strategy, or int.

    Returns:
        `tf.data.Dataset` of the same structure, with R ceil(B / W / R) rows.

    Example:
        >>> from tf_transformer.distribution import Workers
        >>> dataset = tf.data.Dataset.from_tensors([[5], [6], [7]])
        >>> [batch.numpy().tolist() for batch in own_rows(dataset, Workers(index=1, count=2))]
        [[[6], [0]]]
    """
    workers = workers or current_workers()
    replicas = replicas or tf.distribute.get_strategy().num_replicas_in_sync
    parts = workers.count * replicas
    if parts == 1:
        return dataset

    def share(x, *rest):  # `map` passes the parts of a tuple one by one
        parts_of_batch = [pad_rows(x, parts)]
        if rest:
            y, *weights = rest
            parts_of_batch += [pad_labels(y, parts), *(pad_rows(w, parts) for w in weights)]
        own = tf.nest.map_structure(lambda t: t[workers.index :: workers.count], parts_of_batch)
        return tuple(own) if rest else own[0]

    return prefetched(dataset.map(share))


def pad_rows(tensors, multiple):
    """Add rows of 0 until the number of rows is a multiple of `multiple`."""
    return tf.nest.map_structure(lambda tensor: _padded(tensor, multiple, 0), tensors)


def pad_labels(labels, multiple):
    """Add rows of labels that count in no task, see `read_labels`."""

    def padded(tensor):
        tensor = tensor if tensor.dtype.is_floating else exact_labels(tensor)
        return _padded(tensor, multiple, padding_label(tensor.dtype))

    return tf.nest.map_structure(padded, labels)


def _padded(tensor, multiple, value):
    if isinstance(tensor, tf.RaggedTensor):  # empty rows
        missing = -tensor.nrows() % multiple
        ends = tf.repeat(tensor.row_splits[-1:], missing)
        return tensor.from_row_splits(tensor.values, tf.concat([tensor.row_splits, ends], 0))
    missing = -tf.shape(tensor)[0] % multiple
    sides = [(0, missing)] + [(0, 0)] * (tensor.shape.rank - 1)
    return tf.pad(tensor, sides, constant_values=value)


@contextlib.contextmanager
def apart():
    """Within this context, a replica's means are over its own labels: loops cannot communicate."""
    token = _replicas_apart.set(True)
    try:
        yield
    finally:
        _replicas_apart.reset(token)


def real_share(real):
    """The factor that turns the sum over a share of a batch into a mean over all of its labels."""
    count, context = tf.reduce_sum(real), tf.distribute.get_replica_context()
    parts = 1 if _replicas_apart.get() else tf.distribute.get_strategy().num_replicas_in_sync
    if parts > 1 and context is not None:
        count = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    workers = current_workers()
    [count] = workers.sum([count])
    return tf.math.divide_no_nan(float(parts * workers.count), count)


def with_global_value(values):
    """Return values whose mean has this worker's gradient and the value over all workers."""
    workers = current_workers()
    if workers.count == 1:
        return values
    [mean] = workers.mean([tf.reduce_mean(values)])
    return tf.stop_gradient(mean) + (values - tf.stop_gradient(values))


def global_mean(values, real):
    """The mean over the real labels of all replicas and workers, as part of a model's loss."""
    mean = with_global_value(tf.reduce_sum(values) * real_share(real))
    return mean / tf.distribute.get_strategy().num_replicas_in_sync
