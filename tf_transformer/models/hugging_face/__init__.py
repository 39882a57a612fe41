"""Published Transformers in Hugging Face's folders: read, written, exactly."""

from tf_transformer.models.hugging_face.adapters import (
    add_adapters,
    load_adapters,
    merge_adapters,
    save_adapters,
)
from tf_transformer.models.hugging_face.folders import load, save_pretrained
from tf_transformer.models.hugging_face.generation_settings import generation_settings
from tf_transformer.models.hugging_face.translation_tokenizers import TranslationTokenizer

__all__ = [
    "TranslationTokenizer",
    "add_adapters",
    "generation_settings",
    "load",
    "load_adapters",
    "merge_adapters",
    "save_adapters",
    "save_pretrained",
]
