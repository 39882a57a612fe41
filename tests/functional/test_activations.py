"""Activations over the whole range of float16, in which x^2 and x^3 are infinite."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.functional.activations import ACTIVATIONS

NAMES = sorted(set(ACTIVATIONS) - {"linear"})
X = np.concatenate([np.linspace(-6e4, 6e4, 41), np.linspace(-300, 300, 61), np.linspace(-6, 6, 31)])


def value_and_slope(name, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ACTIVATIONS[name](x)
    return y, tape.gradient(y, x)


@pytest.mark.parametrize("name", NAMES)
def test_float16_gives_values_and_slopes_of_float64(name):
    x = tf.constant(X, tf.float16)
    for found, expected in zip(
        value_and_slope(name, x), value_and_slope(name, tf.cast(x, tf.float64)), strict=True
    ):
        assert found.dtype == tf.float16
        np.testing.assert_allclose(found, expected, rtol=3e-3, atol=3e-3)
