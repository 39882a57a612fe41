"""Callbacks: checkpoints, weight averaging, a clean stop on Ctrl-C."""

from tf_transformer.training.callbacks.best_weights import BestWeights
from tf_transformer.training.callbacks.interrupt import InterruptBetweenBatches
from tf_transformer.training.callbacks.last_weights import LastWeights, average_weights
from tf_transformer.training.callbacks.moving_average import MovingAverage
from tf_transformer.training.callbacks.resume_checkpoint import ResumeCheckpoint
from tf_transformer.training.callbacks.stop_on_nan import StopOnNaN

__all__ = [
    "BestWeights",
    "InterruptBetweenBatches",
    "LastWeights",
    "MovingAverage",
    "ResumeCheckpoint",
    "StopOnNaN",
    "average_weights",
]
