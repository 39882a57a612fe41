"""The gradients of the whole batch."""

import tensorflow as tf

from tf_transformer.distribution.workers import current_workers


def global_gradients(grads):
    """Add up the gradients of all replicas and take the mean over all `Workers`."""
    grads = list(grads)
    places = [n for n, grad in enumerate(grads) if grad is not None]
    # The sums over the rows of an embedding, which Keras would clip row by row.
    known = [tf.convert_to_tensor(grads[n]) for n in places]
    context = tf.distribute.get_replica_context()
    if tf.distribute.get_strategy().num_replicas_in_sync > 1 and context is not None:
        known = context.all_reduce(tf.distribute.ReduceOp.SUM, known)
    for n, grad in zip(places, current_workers().mean(known), strict=True):
        grads[n] = grad
    return grads
