"""First and second gradients of normalizations against finite differences."""

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf

from tf_transformer.layers.norms import layer_norm

EPSILON = 0.1


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 3, 5), "gamma": 5, "beta": 5}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


@pytest.fixture
def upstream():
    return np.random.default_rng(1).standard_normal((2, 3, 5))


def gradients(arrays, upstream):
    arrays = {name: tf.convert_to_tensor(array) for name, array in arrays.items()}
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        output = layer_norm(**arrays, epsilon=EPSILON)
    return tape.gradient(output, arrays, tf.convert_to_tensor(upstream))


@pytest.mark.parametrize("jit", [None, False, True])
def test_the_gradient_is_that_of_the_reference(arrays, upstream, jit):
    run = gradients if jit is None else tf.function(gradients, jit_compile=jit)
    found = run(arrays, upstream)
    for name in arrays:

        def loss(array, name=name):
            changed = {**arrays, name: array}
            return np.sum(upstream * ref.layer_norm(**changed, eps=EPSILON))

        expected = ref.numerical_gradient(loss, arrays[name])
        np.testing.assert_allclose(found[name], expected, atol=1e-8, err_msg=name)


def test_the_gradient_of_the_gradient_is_that_of_finite_differences(arrays, upstream):
    weights = np.random.default_rng(2).standard_normal((2, 3, 5))

    def of_the_gradient(x):
        return np.sum(weights * gradients({**arrays, "x": x}, upstream)["x"])

    x = tf.constant(arrays["x"])
    with tf.GradientTape() as tape:
        tape.watch(x)
        first = gradients({**arrays, "x": x}, upstream)["x"]
    found = tape.gradient(first, x, tf.constant(weights))
    expected = ref.numerical_gradient(of_the_gradient, arrays["x"])
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-8)
