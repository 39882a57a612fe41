"""The mean over the real labels of a batch that replicas or workers share.

Axes: B batch, T length.
"""

import contextlib
import contextvars

import tensorflow as tf

from tf_transformer.distribution.workers import current_workers

_replicas_apart = contextvars.ContextVar("replicas apart", default=False)


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
