"""Figures of attention, positions, heads, gradients, costs and training; the attention explorer."""

from tf_transformer.visualize.attention import attention_svg, explorer, translation_attention
from tf_transformer.visualize.figures import (
    chinese_font,
    complexity_figure,
    gradients_figure,
    heads_figure,
    importance_figure,
    positions_figure,
    training_curves,
)

__all__ = [
    "attention_svg",
    "chinese_font",
    "complexity_figure",
    "explorer",
    "gradients_figure",
    "heads_figure",
    "importance_figure",
    "positions_figure",
    "training_curves",
    "translation_attention",
]
