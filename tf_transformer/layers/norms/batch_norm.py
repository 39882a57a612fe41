"""Batch normalisation of padded text.

Axes: D model width; the leading axes are "...".
"""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tf_transformer")
class BatchNorm(keras.layers.BatchNormalization):
    """Normalise each feature by its mean and variance over the tokens of a batch.

    gamma (x - mean) / sqrt(variance + epsilon) + beta for each of the D features, Ioffe and Szegedy
    2015, "Batch Normalization", algorithm 1. Padding is left out of the statistics; with it, as in
    `NaiveBatchNorm`, they depend on how long the texts of a batch happen to be. Outside of training
    the moving averages of both statistics are used.

    Differs from `keras.layers.BatchNormalization`: the defaults, and a batch of padding alone is an
    error instead of statistics of nothing.

    Args:
        momentum: float, of the moving averages.
        epsilon: float, added to the variance.

    Call arguments:
        inputs: float tensor (..., D).
        training: bool or None; the statistics of the batch are used, and averaged, if true.
        tokens: None, or bool tensor (...), True for tokens, False for padding.
        mask: the same, used without `tokens`; by default the Keras mask of `inputs`.

    Returns:
        (..., D), in the layer's compute dtype; statistics are float32 (float64 for float64).

    Raises:
        tf.errors.InvalidArgumentError: If a batch has no token in training. XLA cannot raise
            errors: there the mean counts as 0.

    Example:
        >>> x = tf.constant([[[1.0, 5.0], [3.0, 7.0], [99.0, 99.0]]])
        >>> tokens = tf.constant([[True, True, False]])
        >>> BatchNorm()(x, training=True, tokens=tokens).numpy()[0, :2].round(2).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
    """

    def __init__(self, momentum=0.99, epsilon=1e-6, **kwargs):
        super().__init__(momentum=momentum, epsilon=epsilon, **kwargs)

    def call(self, inputs, training=None, tokens=None, mask=None):
        tokens = mask if tokens is None else tokens
        if training and self.trainable and tokens is not None:
            message = "tokens: expected at least one in a batch of training, got only padding."
            with tf.control_dependencies([tf.debugging.Assert(tf.reduce_any(tokens), [message])]):
                tokens = tf.identity(tokens)
        return super().call(inputs, training=training, mask=tokens)

    def get_config(self):
        config = keras.layers.Layer.get_config(self)
        return {**config, "momentum": self.momentum, "epsilon": self.epsilon}
