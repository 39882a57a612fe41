"""A dense layer over all positions at once.

Axes: B batch, T length, N rows, D width of the input, F width of the output.
"""

import keras
import tensorflow as tf

from tf_transformer.functional.activations import gelu
from tf_transformer.functional.int8_product import LARGEST_WEIGHT, int8_product, to_int8
from tf_transformer.functional.tracing import has_accelerator

# Keras's activation functions -> the form that `int8_product` recognizes.
_PLAIN = {
    keras.activations.linear: None,
    keras.activations.relu: tf.nn.relu,
    keras.activations.gelu: gelu,
}


def add_bias(x, bias):
    """x + bias, whose gradient sums the rows as a matrix product with ones.

    TensorFlow's own gradient (`BiasAddGrad`) adds with atomic operations, which a GPU emulates for
    bfloat16: 60 % of the kernel time of a training step on an H200 (benchmarks/models/NOTES.md).
    The product also accumulates in float32.
    """

    @tf.custom_gradient
    def add(x, bias):
        def gradient(upstream):
            ones = tf.ones((1, tf.shape(upstream)[0]), upstream.dtype)
            return upstream, tf.matmul(ones, upstream)[0]

        return tf.nn.bias_add(x, bias), gradient

    return add(x, bias)


@keras.saving.register_keras_serializable(package="tf_transformer")
class FlatDense(keras.layers.Dense):
    """`keras.layers.Dense` that multiplies (B * T, D) by (D, F).

    Keras computes the same product, but reshapes before adding the bias. Without that reshape,
    TensorFlow fuses product, bias and activation into one oneDNN call outside of training
    (benchmarks/NOTES.md, whole models).

    `quantize("int8")` rounds the kernel to integers within -64..64; from then on the layer is for
    inference only and multiplies integers, see `int8_product`. Keras's own quantization is slower
    than float32 on a CPU.

    Args:
        units, activation, ...: see `keras.layers.Dense`.

    Attributes:
        input_range: None, or float, the input value that 127 stands for in a quantized layer. A
            graph keeps the value it was traced with.

    Example:
        >>> FlatDense(5, activation="gelu")(tf.ones((2, 3, 4))).shape.as_list()
        [2, 3, 5]
    """

    input_range = None

    def call(self, inputs, training=None):
        in_16_bits = tf.as_dtype(self.compute_dtype).size == 2
        if training and in_16_bits and self.use_bias and has_accelerator():
            return self._over_rows(inputs, self._train_on_accelerator)
        return self._over_rows(inputs, lambda rows: super(FlatDense, self).call(rows))

    def _train_on_accelerator(self, rows):
        kernel, bias = (tf.convert_to_tensor(weight) for weight in (self.kernel, self.bias))
        outputs = add_bias(tf.matmul(rows, kernel), bias)
        return outputs if self.activation is None else self.activation(outputs)

    def quantize(self, mode="int8", type_check=True, config=None):
        """Round the kernel to int8, one range for each column. The layer must be built.

        Args:
            mode: "int8", the only one.
            type_check, config: as in Keras; not used.

        Raises:
            NotImplementedError: For any other mode.
        """
        if mode != "int8":
            raise self._not_implemented_error(self.quantize)
        kernel, ranges = to_int8(self._kernel, 0, LARGEST_WEIGHT)
        self._untrack_variable(self._kernel)  # `del` would also collect garbage, for seconds
        self.quantized_build(kernel.shape, mode)
        self._kernel.assign(kernel)
        self.kernel_ranges.assign(ranges)
        self.dtype_policy = keras.dtype_policies.get(f"int8_from_{self.dtype_policy.name}")

    def _int8_build(self, kernel_shape, config=None):
        options = {"initializer": "ones", "trainable": False}
        self._kernel = self.add_weight(kernel_shape, name="kernel", dtype="int8", **options)
        self.kernel_ranges = self.add_weight(
            kernel_shape[1:], name="kernel_ranges", dtype="float32", **options
        )

    def _int8_call(self, inputs, training=None):
        kernel, ranges = self._kernel.value, tf.convert_to_tensor(self.kernel_ranges)
        bias = None if self.bias is None else tf.convert_to_tensor(self.bias)
        activation = _PLAIN.get(self.activation, self.activation)

        def product(rows):
            return int8_product(rows, kernel, ranges, bias, activation, most=self.input_range)

        return self._over_rows(inputs, product)

    def _over_rows(self, inputs, function):
        if len(inputs.shape) < 3:
            return function(inputs)
        flat = tf.reshape(inputs, (-1, inputs.shape[-1]))  # (B * T, D)
        outputs = tf.reshape(function(flat), tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
        outputs.set_shape((*inputs.shape[:-1], self.units))
        return outputs  # (B, T, F)
