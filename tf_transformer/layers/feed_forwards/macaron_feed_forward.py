"""The two feed-forward networks of a Macaron layer.

Axes: D model width, F inner width.
"""

import dataclasses

import keras

from tf_transformer.layers.feed_forwards.feed_forward import FeedForward


@dataclasses.dataclass(frozen=True)
class MacaronFeedForward(FeedForward):
    """A feed-forward network before attention and another after it, each counting half.

    x + FFN(x) / 2, then attention, then x + FFN(x) / 2: Lu et al. 2019, "Understanding and
    Improving Transformer From a Multi-Particle Dynamic System Point of View", section 4. There, a
    Transformer solves the movement of interacting particles step by step, and this order, the
    Strang-Marchuk splitting, has a smaller error per step. With half of `dff` it has the size of
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
