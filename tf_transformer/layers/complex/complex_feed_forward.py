"""The position-wise feed-forward network with complex weights.

Axes: B batch, T length, D model width.
"""

import keras

from tf_transformer.layers.complex.complex_dense import ComplexDense
from tf_transformer.layers.complex.complex_layer import ComplexLayer, check_sizes


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexFeedForward(ComplexLayer):
    """Two complex dense layers with an activation in between, the same at every position.

    FFN(x) = s(x W_1 + b_1) W_2 + b_2, where s acts on the real and the imaginary part separately;
    Wang et al. 2020, "Encoding Word Order in Complex Embeddings", appendix B.

    Args:
        d_model: int, width D of input and output.
        dff: int, width between the two layers.
        activation: Keras activation s.

    Call arguments:
        x: complex tensor (B, T, D), or a real one.

    Returns:
        (B, T, D), complex64, or complex128 under the policy "float64".

    Raises:
        ValueError: If `d_model` or `dff` is not a positive integer.

    Example:
        >>> ComplexFeedForward(8, 32)(tf.ones((1, 3, 8), tf.complex64)).shape.as_list()
        [1, 3, 8]
    """

    def __init__(self, d_model, dff, activation="relu", **kwargs):
        super().__init__(**kwargs)
        check_sizes(d_model=d_model, dff=dff)
        self.d_model = d_model
        self.dff = dff
        self.hidden = ComplexDense(dff, activation, name="hidden", dtype=self.dtype_policy)
        self.dense = ComplexDense(d_model, name="dense", dtype=self.dtype_policy)

    def build(self, x_shape):
        self.hidden.build(x_shape)
        self.dense.build((*x_shape[:-1], self.dff))

    def call(self, x):
        return self.dense(self.hidden(x))

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "dff": self.dff,
            "activation": keras.activations.serialize(self.hidden.activation),
        }
