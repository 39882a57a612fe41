"""Complete models."""

from tf_transformer.models.base_model import with_vocab_size
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer

__all__ = ["LanguageModel", "Transformer", "with_vocab_size"]
