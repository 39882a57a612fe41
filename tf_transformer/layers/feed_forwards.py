"""Dense layers over all positions at once, and the feed-forward networks made of them.

Axes: B batch, T length, N rows, D width of input and output, F width inside, or of one layer's
output.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.activations import ACTIVATIONS, gelu, get_activation
from tf_transformer.functional.int8_product import LARGEST_WEIGHT, int8_product, to_int8
from tf_transformer.functional.tensors import has_accelerator, over_rows
from tf_transformer.layers.base_layer import attributes

__all__ = ["FeedForward", "GatedFeedForward", "MacaronFeedForward"]

# Keras's activation functions -> the form that `int8_product` recognizes.
_PLAIN = {
    keras.activations.linear: None,
    keras.activations.relu: tf.nn.relu,
    keras.activations.gelu: gelu,
}


def add_bias(x, bias):
    """x + bias, whose gradient sums the rows as a matrix product with ones."""

    # TensorFlow's own gradient (`BiasAddGrad`) adds with atomic operations, which a GPU emulates
    # for bfloat16: 60 % of the kernel time of a training step on an H200
    # (benchmarks/models/NOTES.md). The product also accumulates in float32.
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

    Keras reshapes before adding the bias. Without that, TensorFlow fuses product, bias and
    activation into one oneDNN call outside of training (benchmarks/NOTES.md, whole models), except
    in float16.

    `quantize("int8")` rounds the kernel to integers within -64..64; from then on the layer is for
    inference only and multiplies integers. Keras's own quantization is slower than float32.

    `enable_lora(rank, lora_alpha)` adds an adapter to a built layer, see `add_adapters`: Hu et al.
    2021, "LoRA", section 4.1. It is multiplied by the inputs and saved as it is. Keras adds A B to
    the kernel, where 16 bits round small products away, and saves the sum.

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
        if self.lora_enabled:
            return over_rows(self._with_adapter, inputs)
        if self.compute_dtype == "float16" and not has_accelerator():
            # Another axis keeps TensorFlow from fusing product and bias: on a processor with
            # AVX512-FP16, oneDNN has only its reference code for that, 500 times as slow.
            return tf.squeeze(super().call(inputs[None]), 0)
        in_16_bits = tf.as_dtype(self.compute_dtype).size == 2
        if training and in_16_bits and self.use_bias and has_accelerator():
            return over_rows(self._train_on_accelerator, inputs)
        return over_rows(super().call, inputs)

    def _train_on_accelerator(self, rows):
        kernel, bias = (tf.convert_to_tensor(weight) for weight in (self.kernel, self.bias))
        outputs = add_bias(tf.matmul(rows, kernel), bias)
        return outputs if self.activation is None else self.activation(outputs)

    def _with_adapter(self, rows):
        """f(x W + alpha / r (x A) B + b)."""
        weights = self._kernel, self.lora_kernel_a, self.lora_kernel_b
        # Keras casts no weights in a layer of one dtype, and A and B are always float32.
        kernel, a, b = (tf.cast(weight, rows.dtype) for weight in weights)
        scale = self.lora_alpha / self.lora_rank
        outputs = tf.matmul(rows, kernel) + scale * tf.matmul(tf.matmul(rows, a), b)
        if self.bias is not None:
            outputs = tf.nn.bias_add(outputs, tf.convert_to_tensor(self.bias))
        return outputs if self.activation is None else self.activation(outputs)

    def enable_lora(self, rank, lora_alpha=None, **initializers):
        """See `keras.layers.Dense`, whose `build` leaves out the `lora_alpha` of a config."""
        lora_alpha = self.lora_alpha if lora_alpha is None else lora_alpha
        super().enable_lora(rank, lora_alpha, **initializers)

    def merge_lora(self):
        """Add A B to the kernel, and remove A and B."""
        a, b = (np.asarray(w, np.float64) for w in (self.lora_kernel_a, self.lora_kernel_b))
        merged = np.asarray(self._kernel, np.float64) + self.lora_alpha / self.lora_rank * (a @ b)
        self._kernel.assign(merged)
        for name in ("lora_kernel_a", "lora_kernel_b"):
            weight = vars(self).pop(name)  # `del` would also collect garbage, for seconds
            weight.assign(tf.zeros_like(weight))  # for functions that were traced with it
            self._untrack_variable(weight)
            self._delete_tracking(name)
        self.lora_enabled, self.lora_rank, self.lora_alpha = False, None, None

    def save_own_variables(self, store):
        home = keras.layers.Layer if self.lora_enabled else keras.layers.Dense
        home.save_own_variables(self, store)

    def load_own_variables(self, store):
        home = keras.layers.Layer if self.lora_enabled else keras.layers.Dense
        home.load_own_variables(self, store)

    def quantize(self, mode="int8", type_check=True, config=None):
        """Round a built kernel by columns to "int8"; NotImplementedError for any other mode."""
        if mode != "int8":
            raise self._not_implemented_error(self.quantize)
        if self.lora_enabled:
            raise ArgumentError("layer", "no adapter", f"one in {self.path}", "Call merge_lora().")
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

        return over_rows(product, inputs)


def check_width(x_shape, d_model):
    """Check that an input has the width needed for a residual connection."""
    expected = f"width {d_model}, the layer's d_model"
    check(x_shape[-1] == d_model, "x", expected, f"shape {tuple(x_shape)}")


def point_wise_feed_forward_network(d_model, dff, activation="relu", **kwargs):
    """Two dense layers with an activation in between, applied identically at every position.

    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, "Attention Is All You Need", section 3.3.

    Args:
        d_model, dff: ints, width of input and output, and between the two layers.
        activation: Keras activation in between; BERT uses "gelu", the paper and the notes "relu".
        **kwargs: `dtype` and `name` of the layers, and `use_bias`.

    Returns:
        `keras.Sequential`, (B, T, D) -> (B, T, D).

    Example:
        >>> point_wise_feed_forward_network(8, 32)(tf.ones((1, 3, 8))).shape.as_list()
        [1, 3, 8]
    """
    options = {"dtype": kwargs.pop("dtype", None), "use_bias": kwargs.pop("use_bias", True)}
    hidden = FlatDense(dff, activation=activation, name="hidden", **options)
    network = keras.Sequential([hidden, FlatDense(d_model, name="output", **options)], **kwargs)
    network.supports_masking = True
    return network


@keras.saving.register_keras_serializable(package="tf_transformer")
class GatedDense(keras.layers.Layer):
    """f(x W + b) * (x V + c), the gated linear unit.

    Dauphin et al. 2017, "Language Modeling with Gated Convolutional Networks", equation 1; with
    other activations, Shazeer 2020, "GLU Variants Improve Transformer", equation 5.

    Args:
        units: int, F.
        activation: Keras activation f of the gate.
        use_bias: bool, whether there are b and c.

    Call arguments:
        inputs: float tensor (..., D); the output is (..., F).

    Example:
        >>> GatedDense(5, "silu")(tf.ones((2, 3, 4))).shape.as_list()
        [2, 3, 5]
    """

    def __init__(self, units, activation="sigmoid", use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        options = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.gate = FlatDense(units, activation=activation, name="gate", **options)
        self.linear = FlatDense(units, name="linear", **options)

    def build(self, input_shape):
        self.gate.build(input_shape)
        self.linear.build(input_shape)

    def call(self, inputs):
        return self.gate(inputs) * self.linear(inputs)

    def get_config(self):
        activation = keras.activations.serialize(self.gate.activation)
        fields = {**attributes(self.gate, "units", "use_bias"), "activation": activation}
        return {**super().get_config(), **fields}


@dataclasses.dataclass(frozen=True)
class FeedForward:
    """Two dense layers with an activation in between, after attention.

    FFN(x) = f(x W_1 + b_1) W_2 + b_2, "Attention Is All You Need", section 3.3. The other parts of
    `layers.feed_forwards` are subclasses.

    Args:
        activation: str, a name of `functional.activations`, such as "relu", "gelu" (erf) or
            "gelu_new" (tanh); or a function, which must be one of these for the model to be saved.
        use_bias: bool, whether there are b_1 and b_2.

    Raises:
        ValueError: If the name is unknown, or `use_bias` is not a bool.

    Example:
        >>> before, after = FeedForward("gelu").networks(8, 32)
        >>> before, after(tf.ones((1, 3, 8))).shape.as_list()
        (None, [1, 3, 8])
    """

    activation: object = "relu"
    use_bias: bool = True

    def __post_init__(self):
        get_activation(self.activation)
        check(isinstance(self.use_bias, bool), "use_bias", "True or False", f"{self.use_bias!r}")
        names = [name for name, function in ACTIVATIONS.items() if function is self.activation]
        if names:
            object.__setattr__(self, "activation", names[0])

    def network(self, d_model, dff, dtype=None, name="ffn"):
        """Create one network: a `keras.Sequential`, (B, T, D) -> (B, T, D), inside (B, T, F)."""
        options = {"use_bias": self.use_bias, "name": name, "dtype": dtype}
        return point_wise_feed_forward_network(
            d_model, dff, get_activation(self.activation), **options
        )

    def networks(self, d_model, dff, dtype=None):
        """Create the networks of a layer before (may be None) and after attention."""
        return None, self.network(d_model, dff, dtype)


@dataclasses.dataclass(frozen=True)
class GatedFeedForward(FeedForward):
    """A feed-forward network whose inner units are multiplied by a second projection.

    FFN(x) = (f(x W) * (x V)) W_2, Shazeer 2020, "GLU Variants Improve Transformer", equation 6:
    SwiGLU with "silu", GEGLU with "gelu", ReGLU with "relu". It has three matrices instead of two:
    with two thirds of the `dff`, it is as large as `FeedForward`. For the arguments see there; the
    paper has no biases.

    Example:
        >>> GatedFeedForward("silu").network(8, 21)(tf.ones((1, 3, 8))).shape.as_list()
        [1, 3, 8]
    """

    activation: object = "silu"

    def network(self, d_model, dff, dtype=None, name="ffn"):
        """See `FeedForward`."""
        options = {"use_bias": self.use_bias, "dtype": dtype}
        gated = GatedDense(dff, get_activation(self.activation), name="hidden", **options)
        output = FlatDense(d_model, name="output", **options)
        network = keras.Sequential([gated, output], name=name)
        network.supports_masking = True
        return network


@dataclasses.dataclass(frozen=True)
class MacaronFeedForward(FeedForward):
    """A feed-forward network before attention and another after it, each halved.

    x + FFN(x) / 2, then attention, then x + FFN(x) / 2: Lu et al. 2019, "Understanding and
    Improving Transformer From a Multi-Particle Dynamic System Point of View", section 4. With half
    the `dff`, it is as large as `FeedForward`; for the arguments see there.

    Example:
        >>> before, after = MacaronFeedForward().networks(8, 16)
        >>> before(tf.ones((1, 3, 8))).shape.as_list(), after.name
        ([1, 3, 8], 'ffn')
    """

    def network(self, d_model, dff, dtype=None, name="ffn"):
        """See `FeedForward`: one of the two, whose output is halved."""
        network = super().network(d_model, dff, dtype, name)
        network.add(keras.layers.Rescaling(0.5, dtype=dtype, name="half"))
        return network

    def networks(self, d_model, dff, dtype=None):
        """See `FeedForward`."""
        return tuple(self.network(d_model, dff, dtype, name) for name in ("ffn_before", "ffn"))
