"""A dense layer that multiplies one flat matrix.

Axes: B batch, T length, D input width, U units.
"""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tf_transformer")
class FlatDense(keras.layers.Dense):
    """`keras.layers.Dense` on [B*T, D]: the same weights and results, one matrix product.

    TensorFlow multiplies (B, T, D) with (D, U) as B small products, and takes the gradient of
    the kernel as B matrices (D, U) that it then adds up. Flattened, both are one large product
    (`benchmarks/NOTES.md` has the times).

    Args:
        As `keras.layers.Dense`.

    Call arguments:
        x: float tensor (..., D).

    Returns:
        (..., U).

    Example:
        >>> FlatDense(4)(tf.ones((2, 3, 8))).shape.as_list()
        [2, 3, 4]
    """

    def call(self, x, training=None):
        shape = tf.unstack(tf.shape(x))[:-1]
        shape = [static or size for static, size in zip(x.shape, shape, strict=False)]
        flat = super().call(tf.reshape(x, (-1, x.shape[-1])), training=training)  # (B*T, U)
        return tf.reshape(flat, (*shape, self.units))  # (B, T, U)
