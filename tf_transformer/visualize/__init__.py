"""Pictures of what a model attends to."""

from tf_transformer.visualize.attention_svg import attention_svg
from tf_transformer.visualize.translation_attention import translation_attention

__all__ = ["attention_svg", "translation_attention"]
