"""Losses and metrics."""

from tf_transformer.training.losses.masked_accuracy import (
    MaskedAccuracy,
    Perplexity,
    TokenCrossentropy,
)
from tf_transformer.training.losses.r_drop import RDrop
from tf_transformer.training.losses.smoothed_crossentropy import SmoothedCrossentropy

__all__ = [
    "MaskedAccuracy",
    "Perplexity",
    "RDrop",
    "SmoothedCrossentropy",
    "TokenCrossentropy",
]
