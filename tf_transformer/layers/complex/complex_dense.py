"""A dense layer with complex weights.

Axes: D width of the input, F width of the output; the leading axes are "...".
"""

import keras
import tensorflow as tf

from tf_transformer.functional.complex_numbers import complex_linear
from tf_transformer.layers.complex.complex_layer import ComplexLayer, check_sizes


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexDense(ComplexLayer):
    """Multiply by a complex matrix, add a complex bias, activate both parts separately.

    s(x A - y B + c) + i s(x B + y A + d) for the input x + i y, Wang et al. 2020, "Encoding Word
    Order in Complex Embeddings", equation 10. The entries of A + i B start with the variance of
    Glorot's initialization, half of it in each part (Trabelsi et al. 2018, section 3.6).

    Args:
        units: int, F.
        activation: None or a Keras activation s, applied to the real and to the imaginary part.

    Call arguments:
        x: complex tensor (..., D), or a real one.

    Returns:
        (..., F), complex64, or complex128 under the policy "float64".

    Raises:
        ValueError: If `units` is not a positive integer.

    Example:
        >>> ComplexDense(5)(tf.ones((2, 3), tf.complex64)).dtype
        tf.complex64
    """

    def __init__(self, units, activation=None, **kwargs):
        super().__init__(**kwargs)
        check_sizes(units=units)
        self.units = units
        self.activation = keras.activations.get(activation)

    def build(self, x_shape):
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: x_shape[-1]})
        half = keras.initializers.VarianceScaling(0.5, "fan_avg", "uniform")
        self.kernel_real, self.kernel_imag = (
            self.add_weight(
                name=f"kernel_{part}", shape=(x_shape[-1], self.units), initializer=half.clone()
            )
            for part in ("real", "imag")
        )
        self.bias_real, self.bias_imag = (
            self.add_weight(name=f"bias_{part}", shape=(self.units,), initializer="zeros")
            for part in ("real", "imag")
        )

    def call(self, x):
        kernel = tf.convert_to_tensor(self.kernel_real), tf.convert_to_tensor(self.kernel_imag)
        bias = tf.convert_to_tensor(self.bias_real), tf.convert_to_tensor(self.bias_imag)
        outputs = complex_linear(self.parts(x), kernel, bias)  # (..., 2 F)
        return tf.complex(*(self.activation(part) for part in tf.split(outputs, 2, axis=-1)))

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
        }
