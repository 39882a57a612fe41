"""Optimizers and learning rate schedules."""

from tf_transformer.training.optimizers.fused_adam import FusedAdam
from tf_transformer.training.optimizers.global_loss_scale import GlobalLossScale
from tf_transformer.training.optimizers.inverse_square_root_schedule import (
    InverseSquareRootSchedule,
)
from tf_transformer.training.optimizers.layerwise_adamw import LayerwiseAdamW
from tf_transformer.training.optimizers.warm_up_linear_decay import WarmUpLinearDecay

__all__ = [
    "FusedAdam",
    "GlobalLossScale",
    "InverseSquareRootSchedule",
    "LayerwiseAdamW",
    "WarmUpLinearDecay",
]
