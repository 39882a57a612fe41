"""Epochs of batches as a `tf.data` pipeline."""

from tf_transformer.data.prefetched import prefetched


def epochs_dataset(batches, signature, first_epoch=0, first_step=0, epochs=None, transform=None):
    """The batches of consecutive epochs, starting at any step."""
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
