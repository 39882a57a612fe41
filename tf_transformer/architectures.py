"""Published architectures: `from tf_transformer import architectures`."""

from tf_transformer.models.architectures import PUBLISHED, PublishedArchitecture, get

__all__ = ["PUBLISHED", "PublishedArchitecture", "get"]
