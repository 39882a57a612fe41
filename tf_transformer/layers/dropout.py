"""Dropout."""

import keras
import tensorflow as tf

from tf_transformer.functional.dropout import dropout_factors
from tf_transformer.layers.base_layer import WholeState


@keras.saving.register_keras_serializable(package="tf_transformer")
class Dropout(WholeState, keras.layers.Dropout):
    """Same as `keras.layers.Dropout`, in about two thirds of the time.

    x * factor, where factor = 0 with probability `rate`, else 1 / (1 - rate); Srivastava et al.
    2014, "Attention Is All You Need", section 5.4. Keras draws 32 random bits per element, this
    layer 16, see `dropout_factors` (benchmarks/NOTES.md, whole models).

    Args:
        rate, noise_shape, seed: see `keras.layers.Dropout`.

    Call arguments:
        inputs: float tensor of any shape.
        training: bool or None; dropout is only applied if true.

    Returns:
        Tensor of the shape and dtype of `inputs`.

    Example:
        >>> sorted(set(Dropout(0.5)(tf.ones((9, 11)), training=True).numpy().ravel().tolist()))
        [0.0, 2.0]
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1 or self.noise_shape is not None:
            return super().call(inputs, training=training)
        seed = tf.cast(self.seed_generator.next(), tf.int64)  # uint32: int32 could not hold it
        return inputs * dropout_factors(tf.shape(inputs), inputs.dtype, self.rate, seed)
