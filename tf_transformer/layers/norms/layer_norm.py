"""Layer normalisation.

Axes: D model width; the leading axes are "...".
"""

import keras
import tensorflow as tf

from tf_transformer.functional.norms import layer_norm


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerNorm(keras.layers.Layer):
    """Normalise each position to mean 0 and variance 1, then apply a learned scale and shift.

    gamma (x - mean) / sqrt(variance + epsilon) + beta over the last axis, Ba et al. 2016, "Layer
    Normalization", equation 4. Same result and weights as `keras.layers.LayerNormalization`, with
    fewer passes over memory (benchmarks/NOTES.md, whole models).

    Args:
        epsilon: float, added to the variance.

    Call arguments:
        inputs: float tensor (..., D).
        training, tokens: unused; as in `BatchNorm`.

    Returns:
        (..., D), in the layer's compute dtype; statistics are float32 (float64 for float64).

    Example:
        >>> LayerNorm()(tf.constant([[1.0, 3.0]])).numpy().round(3).tolist()
        [[-1.0, 1.0]]
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, input_shape):
        width = input_shape[-1:]
        # No autocast: both stay float32 under a mixed-precision policy.
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones", autocast=False)
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros", autocast=False)

    def call(self, inputs, training=None, tokens=None):
        del training, tokens
        dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
        x, gamma, beta = (tf.cast(tensor, dtype) for tensor in (inputs, self.gamma, self.beta))
        return tf.cast(layer_norm(x, gamma, beta, self.epsilon), self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
