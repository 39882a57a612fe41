"""Complete models."""

from tf_transformer.models.transformer import Transformer

__all__ = ["Transformer"]
