"""The mean over the real tokens of a batch that replicas or workers share.

Axes: B batch, T length.
"""

import tensorflow as tf

from tf_transformer.training.distribution.workers import current_workers


def real_share(real):
    """What makes the sum over a share of a batch a mean over the tokens of all of it.

    Args:
        real: float32 tensor, 1.0 for what counts, 0.0 for padding.

    Returns:
        float32 scalar f: the mean over all replicas or workers of f * sum(values * real) is the sum
        over all of them, divided by the number of real tokens of all; at least 1, so that a batch
        of padding gives 0, not NaN.

    Example:
        >>> float(real_share(tf.constant([1.0, 1.0, 0.0])))
        0.5
    """
    count, parts = tf.reduce_sum(real), tf.distribute.get_strategy().num_replicas_in_sync
    context = tf.distribute.get_replica_context()
    if parts > 1 and context is not None:
        count = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    workers = current_workers()
    [count] = workers.sum([count])
    return parts * workers.count / tf.maximum(count, 1.0)


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
