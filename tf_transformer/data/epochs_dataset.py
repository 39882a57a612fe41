"""Epochs of batches as a `tf.data` pipeline."""

from tf_transformer.data.prefetched import prefetched


def epochs_dataset(batches, signature, first_epoch=0, first_step=0, epochs=None, transform=None):
    """The batches of consecutive epochs, starting at any step.

    Args:
        batches: object with `epoch(number, first_step)`, which yields the batches of an epoch from
            that step on, and `steps_per_epoch`, their number.
        signature: `tf.TensorSpec`s of a batch.
        first_epoch: int, the epoch to start with.
        first_step: int, the number of its batches to skip.
        epochs: int or None, the number of epochs; None for an infinite data set.
        transform: None, or a function of a batch's parts that TensorFlow can trace, applied last.

    Returns:
        `tf.data.Dataset`.

    Example:
        >>> class Batches:
        ...     steps_per_epoch = 2
        ...     def epoch(self, number, first_step):
        ...         yield from (10 * number, 10 * number + 1)[first_step:]
        >>> dataset = epochs_dataset(Batches(), tf.TensorSpec((), tf.int32), 3, 1, epochs=2)
        >>> [int(batch) for batch in dataset]
        [31, 40, 41]
    """
    import tensorflow as tf

    def generate():
        epoch = first_epoch
        while epochs is None or epoch < first_epoch + epochs:
            yield from batches.epoch(epoch, first_step if epoch == first_epoch else 0)
            epoch += 1

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if transform is not None:
        dataset = dataset.map(transform)
    # Keras warns at the end of a data set of unknown size.
    size = tf.data.INFINITE_CARDINALITY
    if epochs is not None:
        size = epochs * batches.steps_per_epoch - first_step
    return prefetched(dataset.apply(tf.data.experimental.assert_cardinality(size)))
