"""Batch normalisation that takes padding for text."""

import keras

from tf_transformer.layers.norms.batch_norm import BatchNorm


@keras.saving.register_keras_serializable(package="tf_transformer")
class NaiveBatchNorm(BatchNorm):
    """`BatchNorm` with the padding of a batch in its statistics, to show what that costs.

    Args:
        momentum, epsilon: see `BatchNorm`.

    Call arguments:
        inputs, training: see `BatchNorm`.
        tokens: ignored.

    Example:
        >>> x = tf.constant([[[1.0, 5.0], [3.0, 7.0], [0.0, 0.0], [0.0, 0.0]]])
        >>> tokens = tf.constant([[True, True, False, False]])
        >>> NaiveBatchNorm()(x, training=True, tokens=tokens).numpy()[0, :2].round(2).tolist()
        [[0.0, 0.65], [1.63, 1.31]]
    """

    def call(self, inputs, training=None, tokens=None):
        del tokens
        return super().call(inputs, training=training)
