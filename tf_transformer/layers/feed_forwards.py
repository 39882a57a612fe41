"""The feed-forward network of a layer, and its gated and Macaron forms.

Axes: B batch, T length, D model width, F width inside.
"""

import dataclasses

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.activations import get_activation
from tf_transformer.layers.flat_dense import FlatDense

__all__ = ["FeedForward", "GatedFeedForward", "MacaronFeedForward"]


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


@keras.saving.register_keras_serializable(package="tf_transformer")
class GatedDense(keras.layers.Layer):
    """f(x W + b) * (x V + c), the gated linear unit.

    Dauphin et al. 2017, "Language Modeling with Gated Convolutional Networks", equation 1; with
    other activations, Shazeer 2020, "GLU Variants Improve Transformer", equation 5.

    Args:
        units: int, F.
        activation: Keras activation f of the gate.

    Call arguments:
        inputs: float tensor (..., D).

    Returns:
        (..., F).

    Example:
        >>> GatedDense(5, "silu")(tf.ones((2, 3, 4))).shape.as_list()
        [2, 3, 5]
    """

    def __init__(self, units, activation="sigmoid", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.gate = FlatDense(units, activation=activation, name="gate", dtype=self.dtype_policy)
        self.linear = FlatDense(units, name="linear", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.gate.build(input_shape)
        self.linear.build(input_shape)

    def call(self, inputs):
        return self.gate(inputs) * self.linear(inputs)

    def get_config(self):
        activation = keras.activations.serialize(self.gate.activation)
        return {**super().get_config(), "units": self.gate.units, "activation": activation}


@dataclasses.dataclass(frozen=True)
class FeedForward:
    """Two dense layers with an activation in between, after attention.

    FFN(x) = f(x W_1 + b_1) W_2 + b_2, "Attention Is All You Need", section 3.3. The other parts of
    `layers.feed_forwards` are subclasses.

    Args:
        activation: str, a name of `functional.activations`, such as "relu", "gelu" (erf) or
            "gelu_new" (tanh); or a function.

    Raises:
        ValueError: If the name is unknown.

    Example:
        >>> before, after = FeedForward("gelu").networks(8, 32)
        >>> before, after(tf.ones((1, 3, 8))).shape.as_list()
        (None, [1, 3, 8])
    """

    activation: object = "relu"

    def __post_init__(self):
        get_activation(self.activation)

    def network(self, d_model, dff, dtype=None, name="ffn"):
        """Create one network.

        Args:
            d_model: int, D.
            dff: int, F.
            dtype: None, or the dtype policy of the network.
            name: str, its name.

        Returns:
            `keras.Sequential`, (B, T, D) -> (B, T, D).
        """
        activation = get_activation(self.activation)
        return point_wise_feed_forward_network(d_model, dff, activation, name=name, dtype=dtype)

    def networks(self, d_model, dff, dtype=None):
        """Create the networks of one layer.

        Args:
            d_model, dff, dtype: see `network`.

        Returns:
            `(before, after)`, the networks before and after attention; `before` may be None.
        """
        return None, self.network(d_model, dff, dtype)


@dataclasses.dataclass(frozen=True)
class GatedFeedForward(FeedForward):
    """A feed-forward network whose inner units are multiplied by a second projection.

    FFN(x) = (f(x W) * (x V)) W_2, Shazeer 2020, "GLU Variants Improve Transformer", equation 6:
    SwiGLU with "silu", GEGLU with "gelu", ReGLU with "relu". It has three matrices instead of two:
    with two thirds of the `dff`, it is as large as `FeedForward`. Biases are as in `FeedForward`;
    the paper has none.

    Args:
        activation: see `FeedForward`.

    Example:
        >>> GatedFeedForward("silu").network(8, 21)(tf.ones((1, 3, 8))).shape.as_list()
        [1, 3, 8]
    """

    activation: object = "silu"

    def network(self, d_model, dff, dtype=None, name="ffn"):
        """See `FeedForward`."""
        gated = GatedDense(dff, get_activation(self.activation), dtype=dtype, name="hidden")
        output = FlatDense(d_model, dtype=dtype, name="output")
        network = keras.Sequential([gated, output], name=name)
        network.supports_masking = True
        return network


@dataclasses.dataclass(frozen=True)
class MacaronFeedForward(FeedForward):
    """A feed-forward network before attention and another after it, each halved.

    x + FFN(x) / 2, then attention, then x + FFN(x) / 2: Lu et al. 2019, "Understanding and
    Improving Transformer From a Multi-Particle Dynamic System Point of View", section 4. There, a
    Transformer solves the movement of interacting particles step by step, and this order, the
    Strang-Marchuk splitting, has a smaller error per step. With half the `dff`, it is as large as
    `FeedForward`.

    Args:
        activation: see `FeedForward`.

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
