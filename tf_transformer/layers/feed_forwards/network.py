"""The position-wise feed-forward network.

Axes: B batch, T length, D model width.
"""

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.flat_dense import FlatDense


def check_width(x_shape, d_model):
    """Check that an input has the width needed for a residual connection."""
    if x_shape[-1] != d_model:
        raise ArgumentError("x", f"width {d_model}, the layer's d_model", f"shape {tuple(x_shape)}")


def point_wise_feed_forward_network(d_model, dff, activation="relu", **kwargs):
    """Two dense layers with an activation in between, applied identically at every position.

    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, "Attention Is All You Need", section 3.3.

    Args:
        d_model: int, width of input and output.
        dff: int, width between the two layers.
        activation: Keras activation between the two layers; BERT uses "gelu", the paper and the
            notes use "relu".
        **kwargs: `dtype` and `name` of the layers.

    Returns:
        `keras.Sequential`, (B, T, D) -> (B, T, D).

    Example:
        >>> point_wise_feed_forward_network(8, 32)(tf.ones((1, 3, 8))).shape.as_list()
        [1, 3, 8]
    """
    dtype = kwargs.pop("dtype", None)
    hidden = FlatDense(dff, activation=activation, dtype=dtype, name="hidden")
    network = keras.Sequential([hidden, FlatDense(d_model, dtype=dtype, name="output")], **kwargs)
    network.supports_masking = True
    return network
