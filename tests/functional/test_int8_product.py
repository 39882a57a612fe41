"""Products of int8 matrices against integers in NumPy.

Axes: M rows, K width of the input, N width of the output.
"""

import keras
import numpy as np
import pytest
import reference_bert as ref
import tensorflow as tf

from tf_transformer.functional.activations import gelu, gelu_tanh
from tf_transformer.functional.int8_product import int8_product, to_int8
from tf_transformer.layers.flat_dense import FlatDense

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
    kernel = rng.integers(-127, 128, (K, N)).astype(np.int8)
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
def test_rounding_is_within_half_a_step(axis):
    x, *_ = inputs()
    rounded, ranges = to_int8(tf.constant(x), axis)
    ranges = np.expand_dims(ranges, axis)
    assert rounded.dtype == tf.int8
    most = np.abs(x).max(axis, keepdims=True)
    np.testing.assert_array_equal(ranges, np.where(most > 0, most, 1))
    assert (np.abs(rounded.numpy() / 127 * ranges - x) <= ranges / 254 * 1.001).all()


@every_mode
@pytest.mark.parametrize("activation", [None, "relu", "gelu", gelu, "silu"])
@pytest.mark.parametrize("most", [None, 4.0])
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


def test_other_modes_are_refused():
    layer = FlatDense(3)
    layer.build((None, 2))
    with pytest.raises(NotImplementedError):
        layer.quantize("float8")
    assert layer.kernel.dtype == "float32"
