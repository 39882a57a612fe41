"""A dense layer with a gate.

Axes: D width of the input, F width of the output.
"""

import keras

from tf_transformer.layers.flat_dense import FlatDense


@keras.saving.register_keras_serializable(package="tf_transformer")
class GatedDense(keras.layers.Layer):
    """f(x W + b) * (x V + c), the gated linear unit.

    Dauphin et al. 2017, "Language Modeling with Gated Convolutional Networks", equation 1; with
    other activations, Shazeer 2020, "GLU Variants Improve Transformer", equation 5.

    Args:
        units: int, F.
        activation: Keras activation f of the gate.

    Call arguments:
        inputs: float tensor (..., D).

    Returns:
        (..., F).

    Example:
        >>> GatedDense(5, "silu")(tf.ones((2, 3, 4))).shape.as_list()
        [2, 3, 5]
    """

    def __init__(self, units, activation="sigmoid", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.gate = FlatDense(units, activation=activation, name="gate", dtype=self.dtype_policy)
        self.linear = FlatDense(units, name="linear", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.gate.build(input_shape)
        self.linear.build(input_shape)

    def call(self, inputs):
        return self.gate(inputs) * self.linear(inputs)

    def get_config(self):
        activation = keras.activations.serialize(self.gate.activation)
        return {**super().get_config(), "units": self.gate.units, "activation": activation}
