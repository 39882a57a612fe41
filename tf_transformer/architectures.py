"""Published architectures: `from tf_transformer import architectures`."""

from tf_transformer.models.architectures import PUBLISHED, get
from tf_transformer.models.published_architecture import PublishedArchitecture

__all__ = ["PUBLISHED", "PublishedArchitecture", "get"]
