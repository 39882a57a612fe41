"""A feed-forward network with a gate: SwiGLU, GEGLU, ReGLU.

Axes: D model width, F inner width.
"""

import dataclasses

import keras

from tf_transformer.functional.activations import get_activation
from tf_transformer.layers.feed_forwards.feed_forward import FeedForward
from tf_transformer.layers.feed_forwards.gated_dense import GatedDense
from tf_transformer.layers.flat_dense import FlatDense


@dataclasses.dataclass(frozen=True)
class GatedFeedForward(FeedForward):
    """A feed-forward network whose inner units are multiplied by a second projection.

    FFN(x) = (f(x W) * (x V)) W_2, Shazeer 2020, "GLU Variants Improve Transformer", equation 6:
    SwiGLU with "silu", GEGLU with "gelu", ReGLU with "relu". It has three matrices instead of two:
    with two thirds of `dff` it has the size of `FeedForward`. Biases are as in `FeedForward`; the
    paper has none.

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
