"""From complex to real numbers.

Axes: D width of the input, F width of the output; the leading axes are "...".
"""

import keras

from tf_transformer.functional.complex_numbers import to_real
from tf_transformer.layers.complex.complex_layer import check_sizes
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.notes_layer import NotesLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexToReal(NotesLayer, keras.layers.Layer):
    """A real dense layer over the real and imaginary parts side by side.

    s([Re x, Im x] W + b) with a real matrix W (2 D, F), as in the code for text classification
    published with Wang et al. 2020, "Encoding Word Order in Complex Embeddings". Its code for
    translation projects the squared moduli instead, which loses the phase.

    Args:
        units: int, F.
        activation: None or a Keras activation s.

    Call arguments:
        x: complex tensor (..., D), or a real one.

    Returns:
        float tensor (..., F), in the layer's compute dtype.

    Raises:
        ValueError: If `units` is not a positive integer.

    Example:
        >>> ComplexToReal(5)(tf.ones((2, 3, 4), tf.complex64)).shape.as_list()
        [2, 3, 5]
    """

    def __init__(self, units, activation=None, **kwargs):
        super().__init__(**kwargs)
        check_sizes(units=units)
        self.dense = FlatDense(units, activation, name="dense", dtype=self.dtype_policy)

    def build(self, x_shape):
        self.dense.build((*x_shape[:-1], 2 * x_shape[-1]))

    def call(self, x):
        return self.dense(to_real(x))

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.dense.units,
            "activation": keras.activations.serialize(self.dense.activation),
        }
