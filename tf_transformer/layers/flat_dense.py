"""A dense layer over all positions at once.

Axes: B batch, T length, D width of the input, F width of the output.
"""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tf_transformer")
class FlatDense(keras.layers.Dense):
    """`keras.layers.Dense` that multiplies (B * T, D) by (D, F).

    Keras computes the same product, but reshapes before adding the bias. Without that reshape,
    TensorFlow fuses product, bias and activation into one oneDNN call outside of training
    (benchmarks/NOTES.md, whole models).

    Args:
        units, activation, ...: see `keras.layers.Dense`.

    Example:
        >>> FlatDense(5, activation="gelu")(tf.ones((2, 3, 4))).shape.as_list()
        [2, 3, 5]
    """

    def call(self, inputs, training=None):
        if len(inputs.shape) < 3:
            return super().call(inputs, training=training)
        flat = tf.reshape(inputs, (-1, inputs.shape[-1]))  # (B * T, D)
        outputs = super().call(flat, training=training)
        outputs = tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
        outputs.set_shape((*inputs.shape[:-1], self.units))
        return outputs  # (B, T, F)
