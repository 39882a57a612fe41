"""Callbacks: checkpoints, weight averaging, a clean stop on Ctrl-C."""

from tf_transformer.training.callbacks.resume_checkpoint import ResumeCheckpoint
from tf_transformer.training.callbacks.stopping import InterruptBetweenBatches, StopOnNaN
from tf_transformer.training.callbacks.weights import (
    BestWeights,
    LastWeights,
    MovingAverage,
    average_weights,
)

__all__ = [
    "BestWeights",
    "InterruptBetweenBatches",
    "LastWeights",
    "MovingAverage",
    "ResumeCheckpoint",
    "StopOnNaN",
    "average_weights",
]
