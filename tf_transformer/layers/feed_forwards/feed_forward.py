"""The feed-forward network of the paper.

Axes: B batch, T length, D model width, F inner width.
"""

import dataclasses

from tf_transformer.functional.activations import get_activation
from tf_transformer.layers.feed_forwards.network import point_wise_feed_forward_network


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
