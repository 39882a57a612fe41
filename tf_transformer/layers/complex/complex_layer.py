"""What all complex layers share: their dtypes.

Axes: D width; the leading axes are "...".
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.complex_numbers import to_real
from tf_transformer.layers.notes_layer import NotesLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexLayer(NotesLayer, keras.layers.Layer):
    """Base of the layers that return complex tensors.

    Whatever the dtype policy, outputs are complex64 and weights float32, since TensorFlow has no
    complex type of half the precision; under "float64" they are complex128 and float64. Real inputs
    are taken as complex ones without an imaginary part.
    """

    @property
    def real_dtype(self):
        """str, "float32" or "float64", the dtype of weights and of each part."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def add_weight(self, **kwargs):
        """Add a weight of `real_dtype` that no policy casts."""
        return super().add_weight(dtype=self.real_dtype, autocast=False, **kwargs)

    def as_complex(self, x):
        """Cast an input (..., D) to complex64, or complex128 under "float64"."""
        return tf.cast(x, tf.complex128 if self.real_dtype == "float64" else tf.complex64)

    def parts(self, x):
        """Real and imaginary parts of an input (..., D), concatenated, (..., 2 D)."""
        return to_real(self.as_complex(x))


def check_sizes(**sizes):
    """Check that sizes are positive integers."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ArgumentError(name, "a positive integer", f"{size!r}")
