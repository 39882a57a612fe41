"""Root mean square normalisation.

Axes: D model width; the leading axes are "...".
"""

import keras
import tensorflow as tf

from tf_transformer.functional.norms import rms_norm


@keras.saving.register_keras_serializable(package="tf_transformer")
class RMSNorm(keras.layers.Layer):
    """Divide each position by its root mean square, then apply a learned scale.

    gamma x / sqrt(mean(x^2) + epsilon) over the last axis, Zhang and Sennrich 2019, "Root Mean
    Square Layer Normalization", equation 4. There is no mean to subtract and no shift.

    Args:
        epsilon: float, added to the mean square.

    Call arguments:
        inputs: float tensor (..., D).
        training, tokens: unused; as in `BatchNorm`.

    Returns:
        (..., D), in the layer's compute dtype; statistics are float32 (float64 for float64).

    Example:
        >>> RMSNorm()(tf.constant([[3.0, -3.0]])).numpy().round(3).tolist()
        [[1.0, -1.0]]
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, input_shape):
        # No autocast: it stays float32 under a mixed-precision policy.
        self.gamma = self.add_weight(
            name="gamma", shape=input_shape[-1:], initializer="ones", autocast=False
        )

    def call(self, inputs, training=None, tokens=None):
        del training, tokens
        dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
        x, gamma = (tf.cast(tensor, dtype) for tensor in (inputs, self.gamma))
        return tf.cast(rms_norm(x, gamma, self.epsilon), self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
