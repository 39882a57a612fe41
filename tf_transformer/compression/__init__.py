"""Smaller and faster models."""

from tf_transformer.compression.choosing import least_important
from tf_transformer.compression.confidence import head_confidence
from tf_transformer.compression.distiller import Distiller
from tf_transformer.compression.exit_points import ExitPoint, choose_exit, exit_points
from tf_transformer.compression.gradual_pruning import prune_gradually
from tf_transformer.compression.importance import head_importance, unit_importance
from tf_transformer.compression.pruning import prune_heads, pruned
from tf_transformer.compression.quantization import quantized
from tf_transformer.compression.sequence_distillation import distilled_pairs

__all__ = [
    "Distiller",
    "ExitPoint",
    "choose_exit",
    "distilled_pairs",
    "exit_points",
    "head_confidence",
    "head_importance",
    "least_important",
    "prune_gradually",
    "prune_heads",
    "pruned",
    "quantized",
    "unit_importance",
]
