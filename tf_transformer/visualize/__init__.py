"""Figures of attention, positions, heads, gradients, costs and training; a page to explore."""

from tf_transformer.visualize.attention_svg import attention_svg
from tf_transformer.visualize.complexity_figure import complexity_figure
from tf_transformer.visualize.explorer import explorer
from tf_transformer.visualize.figure_style import chinese_font
from tf_transformer.visualize.gradients_figure import gradients_figure
from tf_transformer.visualize.heads_figure import heads_figure
from tf_transformer.visualize.importance_figure import importance_figure
from tf_transformer.visualize.positions_figure import positions_figure
from tf_transformer.visualize.training_curves import training_curves
from tf_transformer.visualize.translation_attention import translation_attention

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
