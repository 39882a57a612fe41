"""Products of int8 matrices against integers in NumPy.

Axes: M rows, K width of the input, N width of the output.
"""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import reference_bert as ref
import tensorflow as tf

from tf_transformer import LanguageModel
from tf_transformer.functional.activations import gelu, gelu_tanh
from tf_transformer.functional.int8_product import LARGEST_WEIGHT, int8_product, to_int8
from tf_transformer.layers.feed_forwards import FlatDense

pytestmark = pytest.mark.one_of(10, "forms")

M, K, N = 7, 1597, 13
MODES = {
    "eager": lambda function: function,
    "graph": lambda function: tf.function(function, autograph=False),
    "xla": lambda function: tf.function(function, autograph=False, jit_compile=True),
}
every_mode = pytest.mark.parametrize("mode", MODES)


def inputs():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((M, K)).astype(np.float32)
    x[3] = 0
    kernel = rng.integers(-64, 65, (K, N)).astype(np.int8)
    return x, kernel, rng.uniform(0.5, 2, N).astype(np.float32), rng.standard_normal(N)


def expected(x, kernel, ranges, bias, most):
    """x and the kernel as integers, multiplied as integers, then scaled in float64."""
    if most is None:
        most = np.abs(x).max(1, keepdims=True)
        most[most == 0] = 1
    steps = np.round(x * np.float32(127 / most))
    integers = np.clip(steps, -127, 127).astype(np.int64) @ kernel.astype(np.int64)
    return integers * (ranges.astype(np.float64) / 127) * (np.float64(most) / 127) + bias


@every_mode
@pytest.mark.parametrize("most", [None, 2.0, 100.0])
@pytest.mark.parametrize("transposed", [False, True])
def test_it_is_the_product_of_the_integers(mode, most, transposed):
    x, kernel, ranges, bias = inputs()
    function = MODES[mode](
        lambda x: int8_product(
            x,
            tf.constant(kernel.T if transposed else kernel),
            tf.constant(ranges),
            tf.constant(bias, tf.float32),
            most=most,
            transposed=transposed,
        )
    )
    output = function(tf.constant(x)).numpy()
    wanted = expected(x, kernel, ranges, bias, most)
    # A value half-way between two integers may go to either.
    tolerance = 2e-6 * np.abs(wanted).max() + (0 if most is None else most / 127 * 2.5)
    np.testing.assert_allclose(output, wanted, rtol=0, atol=tolerance)
    assert np.median(np.abs(output - wanted)) < 2e-6 * np.abs(wanted).max()


@every_mode
@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        (gelu, ref.gelu),
        (gelu_tanh, ref.gelu_tanh),
        (tf.nn.relu, lambda x: np.maximum(x, 0)),
        (tf.nn.silu, lambda x: x / (1 + np.exp(-x))),
    ],
)
def test_activations_are_applied_after_the_bias(mode, activation, formula):
    x, kernel, ranges, bias = inputs()
    x, kernel = x[:, :11], kernel[:11]
    for most in (None, 3.0):
        function = MODES[mode](
            lambda x, most=most: int8_product(
                x,
                tf.constant(kernel),
                tf.constant(ranges),
                tf.constant(bias),
                activation,
                most=most,
            )
        )
        wanted = formula(expected(x, kernel, ranges, bias, most))
        np.testing.assert_allclose(function(tf.constant(x)), wanted, atol=0.06 if most else 1e-5)


def test_a_graph_multiplies_integers():
    x, kernel, ranges, _ = inputs()
    graph = MODES["graph"](lambda x: int8_product(x, tf.constant(kernel), tf.constant(ranges)))
    operations = graph.get_concrete_function(tf.constant(x)).graph.get_operations()
    assert "_QuantizedMatMul" in {operation.type for operation in operations}


WORST = """
import numpy as np
import tensorflow as tf

from tf_transformer.functional.int8_product import LARGEST_WEIGHT, int8_product

rng = np.random.default_rng(0)
for rows, width, units in ((1, 2, 1), (1, 1597, 13), (2, 1597, 257), (67, 97, 48), (1, 31, 13)):
    for draw in ("same sign", "any sign"):
        x, kernel = np.full((rows, width), 127), np.full((width, units), LARGEST_WEIGHT)
        if draw == "any sign":
            x, kernel = rng.choice([-1, 1], x.shape) * x, rng.choice([-1, 1], kernel.shape) * kernel
        expected = x.astype(np.int64) @ kernel.astype(np.int64)
        for transposed in (False, True):
            stored = tf.constant(kernel.T if transposed else kernel, tf.int8)
            for most in (None, 127.0):

                @tf.function(autograph=False)
                def product(x):
                    ranges = tf.fill([units], 127.0)
                    return int8_product(x, stored, ranges, most=most, transposed=transposed)

                found = product(tf.constant(x, tf.float32)).numpy()
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0.1)
                operations = product.get_concrete_function(tf.constant(x, tf.float32)).graph
                types = {operation.type for operation in operations.get_operations()}
                assert "_QuantizedMatMul" in types
"""


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "setting",
    [
        "ONEDNN_MAX_CPU_ISA=SSE41",
        "ONEDNN_MAX_CPU_ISA=AVX2",
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE",
        "ONEDNN_MAX_CPU_ISA=DEFAULT",
        "TF_ENABLE_ONEDNN_OPTS=0",
    ],
)
def test_the_largest_integers_are_exact_on_every_processor(setting):
    """Instructions are chosen once in a process; a processor without them uses what it has."""
    environment = {**os.environ, **dict([setting.split("=")])}
    done = subprocess.run(
        [sys.executable, "-c", WORST], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@every_mode
@pytest.mark.parametrize("kind", [tf.constant, tf.Variable])
@pytest.mark.parametrize("value", [-128, -65, 65, 127])
def test_a_kernel_that_some_processors_multiply_wrongly_is_refused(mode, value, kind):
    x, kernel, ranges, _ = inputs()
    kernel[5, 3] = value
    weight = kind(kernel)
    kernel_in = (lambda: weight) if kind is tf.Variable else lambda: tf.constant(kernel)
    product = MODES[mode](lambda x: int8_product(x, kernel_in(), tf.constant(ranges)))
    if mode == "eager":  # in float32
        np.testing.assert_allclose(
            product(tf.constant(x)), expected(x, kernel, ranges, 0, None), atol=1e-2
        )
        return
    with pytest.raises(ValueError, match=f"within -64..64, .* got {abs(value)}"):
        product(tf.constant(x))


def test_word_vectors_that_keras_quantized_are_refused():
    """Keras rounds to 127, and the logits of tied word vectors are a product."""
    model = LanguageModel(1, 8, 2, 11, 13, max_position=8)
    model.build()
    model.decoder.embedding.embedding.quantize("int8")
    with pytest.raises(ValueError, match="within -64..64, .* got 127.*compression.quantized"):
        tf.function(model)(tf.constant([[5, 6]]))


def test_products_of_one_shape_keep_their_own_ranges():
    """oneDNN's operations are kept by shape and address of the ranges."""
    x, kernel, ranges, _ = inputs()
    kernel, ranges = tf.constant(kernel), [tf.Variable(ranges), tf.Variable(3 * ranges)]

    @tf.function(autograph=False)
    def both(x):
        return [int8_product(x, kernel, tf.convert_to_tensor(r), most=2.0) for r in ranges]

    for factor in (3.0, 6.0):
        first, second = both(tf.constant(x))
        np.testing.assert_allclose(factor * first, second, rtol=1e-5, atol=1e-4)
        ranges[1].assign(2 * ranges[1])


def test_half_precision_goes_in_and_out():
    x, kernel, ranges, _ = inputs()
    x = tf.cast(x, tf.bfloat16)
    output = int8_product(x, tf.constant(kernel), tf.constant(ranges))
    assert output.dtype == tf.bfloat16
    wanted = expected(tf.cast(x, tf.float32).numpy(), kernel, ranges, 0, None)
    np.testing.assert_allclose(
        tf.cast(output, tf.float32), wanted, atol=0.01 * np.abs(wanted).max()
    )


def test_nan_is_not_lost():
    x, kernel, ranges, _ = inputs()
    x[2, 5] = np.nan
    output = int8_product(tf.constant(x), tf.constant(kernel), tf.constant(ranges))
    assert np.isnan(output[2]).all() and np.isfinite(np.delete(output, 2, 0)).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("largest", [127, LARGEST_WEIGHT])
def test_rounding_is_within_half_a_step(axis, largest):
    x, *_ = inputs()
    rounded, ranges = to_int8(tf.constant(x), axis, largest)
    ranges = np.expand_dims(ranges, axis)
    assert rounded.dtype == tf.int8
    most = np.abs(x).max(axis, keepdims=True)
    np.testing.assert_allclose(ranges, np.where(most > 0, most, 1) * 127 / largest, rtol=1e-6)
    assert np.abs(rounded).max() == largest
    assert (np.abs(rounded.numpy() / 127 * ranges - x) <= ranges / 254 * 1.001).all()


@every_mode
@pytest.mark.parametrize("activation", [None, "relu", "gelu", gelu, "silu"])
@pytest.mark.parametrize("most", [None, 4.0])
@pytest.mark.one_of(10)
def test_a_quantized_layer_is_near_the_layer(mode, activation, most):
    keras.utils.set_random_seed(0)
    layer = FlatDense(11, activation=activation, bias_initializer="ones")
    x = tf.random.stateless_normal((2, 3, 17), (1, 2))
    before = layer(x)
    layer.quantize("int8")
    layer.input_range = most
    after = MODES[mode](layer)(x)
    assert after.shape == before.shape
    assert 1e-4 < np.abs(after - before).max() < 0.05
    assert layer.kernel.dtype == "int8" and not layer.kernel.trainable
    assert np.abs(layer.kernel.numpy()).max() == LARGEST_WEIGHT


def test_other_modes_are_refused():
    layer = FlatDense(3)
    layer.build((None, 2))
    with pytest.raises(NotImplementedError):
        layer.quantize("float8")
    assert layer.kernel.dtype == "float32"
