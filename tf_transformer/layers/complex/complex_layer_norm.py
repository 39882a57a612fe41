"""Layer normalisation of complex tensors.

Axes: D model width; the leading axes are "...".
"""

import keras
import tensorflow as tf

from tf_transformer.functional.norms import layer_norm
from tf_transformer.layers.complex.complex_layer import ComplexLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexLayerNorm(ComplexLayer):
    """Normalise the real and the imaginary part separately, each with its own scale and shift.

    LayerNorm(Re x) + i LayerNorm(Im x), see `LayerNorm` for each.

    Args:
        epsilon: float, added to the variances.

    Call arguments:
        x: complex tensor (..., D), or a real one.

    Returns:
        (..., D), complex64, or complex128 under the policy "float64".

    Differs from the paper (Wang et al. 2020, "Encoding Word Order in Complex Embeddings", appendix
    B): it normalises the parts separately too, but over the batch. The code published with it has
    layer normalisation, with one scale and shift for both parts.

    Example:
        >>> ComplexLayerNorm()(tf.constant([[1 + 5j, 3 + 9j]])).numpy().round(3).tolist()
        [[(-1-1j), (1+1j)]]
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape):
        shape = (2, x_shape[-1])
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")

    def call(self, x):
        x = self.as_complex(x)
        gammas, betas = tf.unstack(self.gamma), tf.unstack(self.beta)
        real = layer_norm(tf.math.real(x), gammas[0], betas[0], self.epsilon)
        return tf.complex(real, layer_norm(tf.math.imag(x), gammas[1], betas[1], self.epsilon))

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
