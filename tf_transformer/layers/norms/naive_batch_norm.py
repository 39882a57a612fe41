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
        tokens, mask: ignored.

    Example:
        >>> x = tf.constant([[[4.0, 8.0], [4.0, 8.0], [0.0, 0.0], [0.0, 0.0]]])
        >>> tokens = tf.constant([[True, True, False, False]])
        >>> NaiveBatchNorm()(x, training=True, tokens=tokens).numpy()[0, 0].round(3).tolist()
        [1.0, 1.0]
        >>> BatchNorm()(x, training=True, tokens=tokens).numpy()[0, 0].round(3).tolist()
        [0.0, 0.0]
    """

    def call(self, inputs, training=None, tokens=None, mask=None):
        del tokens, mask
        return super().call(inputs, training=training)
