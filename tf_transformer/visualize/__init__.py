"""Figures: attention weights, training curves, and a page to explore attention."""

from tf_transformer.visualize.attention_svg import attention_svg
from tf_transformer.visualize.explorer import explorer
from tf_transformer.visualize.training_curves import training_curves
from tf_transformer.visualize.translation_attention import translation_attention

__all__ = ["attention_svg", "explorer", "training_curves", "translation_attention"]
