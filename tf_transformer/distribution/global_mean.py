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
    """Within it, a replica's means are over its own labels: loops cannot ask the others.

    Example:
        >>> with apart():
        ...     share = real_share(tf.constant([1.0, 1.0]))
    """
    token = _replicas_apart.set(True)
    try:
        yield
    finally:
        _replicas_apart.reset(token)


def real_share(real):
    """What makes the sum over a share of a batch a mean over the labels of all of it.

    Args:
        real: float32 tensor, 1.0 for labels that count and 0.0 for the rest.

    Returns:
        float32 scalar f: the mean over all replicas or workers of f * sum(values * real) is the sum
        over all of them, divided by the number of real labels of all; 0 without any, so that a
        batch of padding gives 0, not NaN.

    Example:
        >>> float(real_share(tf.constant([1.0, 1.0, 0.0])))
        0.5
    """
    count, context = tf.reduce_sum(real), tf.distribute.get_replica_context()
    parts = 1 if _replicas_apart.get() else tf.distribute.get_strategy().num_replicas_in_sync
    if parts > 1 and context is not None:
        count = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    workers = current_workers()
    [count] = workers.sum([count])
    return tf.math.divide_no_nan(float(parts * workers.count), count)


def with_global_value(values):
    """Give values whose mean has the gradient of this worker and the value of all workers.

    Args:
        values: float tensor.

    Returns:
        float tensor of the same shape: on every worker all of it is the mean of all workers, to the
        last bit.

    Example:
        >>> with_global_value(tf.constant([1.0, 2.0])).numpy().tolist()
        [1.0, 2.0]
    """
    workers = current_workers()
    if workers.count == 1:
        return values
    [mean] = workers.mean([tf.reduce_mean(values)])
    return tf.stop_gradient(mean) + (values - tf.stop_gradient(values))


def global_mean(values, real):
    """The mean over the real labels of all replicas and workers, as a part of a model's loss.

    Args:
        values: float32 tensor of the shape of the labels, 0 where they do not count.
        real: see `real_share`.

    Returns:
        float32 scalar, divided by the number of replicas of the strategy, as Keras does to a loss.

    Example:
        >>> float(global_mean(tf.constant([1.0, 5.0, 0.0]), tf.constant([1.0, 1.0, 0.0])))
        3.0
    """
    mean = with_global_value(tf.reduce_sum(values) * real_share(real))
    return mean / tf.distribute.get_strategy().num_replicas_in_sync
