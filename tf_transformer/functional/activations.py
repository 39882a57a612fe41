"""Activation functions, looked up by the names used in configuration files."""

import tensorflow as tf

from tf_transformer.errors import ArgumentError


def gelu(x):
    """Gaussian error linear unit of a float tensor: x Phi(x), where Phi is the CDF of N(0, 1).

    0.5 x (1 + erf(x / sqrt(2))), Hendrycks and Gimpel 2016, "Gaussian Error Linear Units",
    section 2.

    Example:
        >>> round(float(gelu(tf.constant(1.0))), 4)
        0.8413
    """
    return tf.nn.gelu(x, approximate=False)


def gelu_tanh(x):
    """Tanh approximation of GELU, within 5e-4 of `gelu`.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), Hendrycks and Gimpel 2016, section 2. Used
    by Google's BERT code since February 2019, and by its ALBERT code.

    Example:
        >>> round(float(gelu_tanh(tf.constant(1.0))), 4)
        0.8412
    """
    # In float16, x^3 overflows from x = 41, and the gradient is NaN.
    wide = tf.cast(x, tf.float32) if x.dtype == tf.float16 else x
    return tf.cast(tf.nn.gelu(wide, approximate=True), x.dtype)


# The name says which form of GELU a checkpoint was trained with. Hugging Face's names are all here,
# except those that no BERT uses: "prelu", "sqrtsoftplus" and "xielu".
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "linear": None,
    "relu": tf.nn.relu,
    "sigmoid": tf.nn.sigmoid,
    "silu": tf.nn.silu,
    "swish": tf.nn.silu,
    "tanh": tf.nn.tanh,
    "gelu_10": lambda x: tf.clip_by_value(gelu(x), -10.0, 10.0),
    "gelu_accurate": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "gelu_python": gelu,
    "gelu_python_tanh": gelu_tanh,
    "hardswish": lambda x: x * (tf.nn.relu6(x + 3.0) / 6.0),
    # The Gaussian CDF with mean 0.707107 and deviation 0.282095, Ma et al. 2022, "Mega".
    "laplace": lambda x: 0.5 * (1.0 + tf.math.erf((x - 0.707107) / (0.282095 * 2.0**0.5))),
    "leaky_relu": lambda x: tf.nn.leaky_relu(x, 0.01),  # TensorFlow's default is 0.2
    "mish": lambda x: x * tf.nn.tanh(tf.nn.softplus(x)),
    "quick_gelu": lambda x: x * tf.nn.sigmoid(1.702 * x),
    "relu2": lambda x: tf.square(tf.nn.relu(x)),
    "relu6": tf.nn.relu6,
}


def get_activation(activation):
    """Return the activation function for a name from a configuration.

    Args:
        activation: str, one of `ACTIVATIONS`, where "linear" is None; a function or None is
            returned unchanged.

    Raises:
        ValueError: For anything else.

    Example:
        >>> get_activation("gelu") is gelu
        True
    """
    if activation is None or callable(activation):
        return activation
    if not isinstance(activation, str) or activation.lower() not in ACTIVATIONS:
        expected = f"one of {', '.join(ACTIVATIONS)}, or a function"
        raise ArgumentError("activation", expected, f"{activation!r}")
    return ACTIVATIONS[activation.lower()]
