"""Complete models."""

from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer
from tf_transformer.models.vocabulary import with_vocab_size

__all__ = ["LanguageModel", "Transformer", "with_vocab_size"]
