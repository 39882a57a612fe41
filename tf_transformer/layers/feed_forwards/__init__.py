"""Feed-forward networks, one file for each."""

from tf_transformer.layers.feed_forwards.feed_forward import FeedForward
from tf_transformer.layers.feed_forwards.gated_feed_forward import GatedFeedForward
from tf_transformer.layers.feed_forwards.macaron_feed_forward import MacaronFeedForward

__all__ = ["FeedForward", "GatedFeedForward", "MacaronFeedForward"]
