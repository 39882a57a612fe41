"""Plots of attention weights and training curves."""

from tf_transformer.visualize.attention_svg import attention_svg
from tf_transformer.visualize.training_curves import training_curves
from tf_transformer.visualize.translation_attention import translation_attention

__all__ = ["attention_svg", "training_curves", "translation_attention"]
