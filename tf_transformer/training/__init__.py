"""Training: schedules, loss, metric, checkpoints, and the runs that join them."""

from tf_transformer.training.best_weights import BestWeights
from tf_transformer.training.compilations import count_compilations
from tf_transformer.training.fine_tuning import FineTuning, fine_tune, text_batches
from tf_transformer.training.fused_adam import FusedAdam
from tf_transformer.training.last_weights import LastWeights, average_weights
from tf_transformer.training.layerwise_adamw import LayerwiseAdamW
from tf_transformer.training.linear_schedule import WarmUpLinearDecay
from tf_transformer.training.loss import SmoothedCrossentropy
from tf_transformer.training.metrics import MaskedAccuracy
from tf_transformer.training.moving_average import MovingAverage
from tf_transformer.training.presets import PRESETS, Preset, get_preset
from tf_transformer.training.pretraining_presets import (
    PRETRAINING_PRESETS,
    PretrainingPreset,
)
from tf_transformer.training.pretraining_run import PretrainingRun
from tf_transformer.training.r_drop import RDrop
from tf_transformer.training.resumable_fit import resumable_fit
from tf_transformer.training.resume_checkpoint import ResumeCheckpoint
from tf_transformer.training.run import TrainingRun
from tf_transformer.training.schedule import InverseSquareRootSchedule
from tf_transformer.training.scores import score_translations

__all__ = [
    "PRESETS",
    "PRETRAINING_PRESETS",
    "BestWeights",
    "FineTuning",
    "FusedAdam",
    "InverseSquareRootSchedule",
    "LastWeights",
    "LayerwiseAdamW",
    "MaskedAccuracy",
    "MovingAverage",
    "Preset",
    "PretrainingPreset",
    "PretrainingRun",
    "RDrop",
    "ResumeCheckpoint",
    "SmoothedCrossentropy",
    "TrainingRun",
    "WarmUpLinearDecay",
    "average_weights",
    "count_compilations",
    "fine_tune",
    "get_preset",
    "resumable_fit",
    "score_translations",
    "text_batches",
]
