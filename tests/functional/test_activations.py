"""Activations by their equations, and over the range of float16, in which x^2 is infinite."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.functional.activations import ACTIVATIONS, get_activation

NAMES = sorted(set(ACTIVATIONS) - {"linear"})
X = np.concatenate([np.linspace(-6e4, 6e4, 41), np.linspace(-300, 300, 61), np.linspace(-6, 6, 31)])
ERF = np.vectorize(math.erf)
TANH_GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_accurate", "gelu_fast", "gelu_python_tanh")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf_gelu(x):
    return x / 2 * (1 + ERF(x / math.sqrt(2)))


def tanh_gelu(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# As in `transformers.activations`, in float64; all were compared with torch.
EQUATIONS = {
    "gelu": erf_gelu,
    "gelu_python": erf_gelu,
    **dict.fromkeys(TANH_GELU, tanh_gelu),
    "gelu_10": lambda x: np.clip(erf_gelu(x), -10, 10),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "laplace": lambda x: (1 + ERF((x - 0.707107) / (0.282095 * math.sqrt(2)))) / 2,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", NAMES)
def test_equations(name):
    x = np.linspace(-23, 23, 461)
    found = ACTIVATIONS[name](tf.constant(x, tf.float64))
    # TensorFlow's constants have the digits of float32; the constant of gelu_fast has ten.
    np.testing.assert_allclose(found, EQUATIONS[name](x), rtol=2e-7, atol=2e-8)
    narrow = ACTIVATIONS[name](tf.constant(x, tf.float32))
    np.testing.assert_allclose(narrow, EQUATIONS[name](x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["prelu", "xielu", "sqrtsoftplus", "gelu_20", "", 0.1, 2])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=f"activation: expected one of gelu, .*got {name!r}"):
        get_activation(name)


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
        with np.errstate(over="ignore"):  # the square of 300 is no float16
            expected = expected.numpy().astype(np.float16).astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=3e-3, atol=3e-3)
