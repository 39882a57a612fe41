"""Complete models."""

from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer

__all__ = ["LanguageModel", "Transformer"]
