"""Smaller and faster models."""

from tf_transformer.compression.distiller import Distiller, distilled_pairs
from tf_transformer.compression.exit_points import ExitPoint, choose_exit, exit_points
from tf_transformer.compression.importance import (
    head_confidence,
    head_importance,
    least_important,
    prune_gradually,
    unit_importance,
)
from tf_transformer.compression.pruning import prune_heads, pruned
from tf_transformer.compression.quantization import quantized

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
