"""Short name for BERT: `from tf_transformer import bert`."""

from tf_transformer.models.bert import *  # noqa: F403
from tf_transformer.models.bert import __all__ as __all__
