"""Dropout of complex tensors."""

import keras

from tf_transformer.functional.complex_numbers import to_complex
from tf_transformer.layers.complex.complex_layer import ComplexLayer
from tf_transformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexDropout(ComplexLayer):
    """Drop real and imaginary parts independently of each other.

    As in the code published with Wang et al. 2020, "Encoding Word Order in Complex Embeddings".

    Args:
        rate, seed: see `keras.layers.Dropout`.

    Call arguments:
        x: complex tensor of any shape, or a real one.
        training: bool or None; dropout is only applied if true.

    Returns:
        Tensor of the same shape, complex64, or complex128 under the policy "float64".

    Example:
        >>> dropped = ComplexDropout(0.5)(tf.fill((9, 11), 1 + 1j), training=True)
        >>> sorted(set(dropped.numpy().real.ravel().tolist()))
        [0.0, 2.0]
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.dropout = Dropout(rate, seed=seed, name="dropout", dtype=self.real_dtype)

    def build(self, x_shape):
        self.dropout.build((*x_shape[:-1], 2 * x_shape[-1]))

    def call(self, x, training=None):
        if not training:
            return self.as_complex(x)
        return to_complex(self.dropout(self.parts(x), training=True))

    def get_config(self):
        return {**super().get_config(), "rate": self.dropout.rate, "seed": self.dropout.seed}
