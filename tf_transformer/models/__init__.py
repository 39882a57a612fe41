"""Complete models."""

from tf_transformer.models.base_model import with_vocab_size
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.pooled_model import PooledModel
from tf_transformer.models.transformer import Transformer

__all__ = ["LanguageModel", "PooledModel", "Transformer", "with_vocab_size"]
