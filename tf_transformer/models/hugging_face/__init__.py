"""Published Transformers in Hugging Face's folders: read, written, exactly."""

from tf_transformer.models.hugging_face.folders import load, save_pretrained
from tf_transformer.models.hugging_face.generation_settings import generation_settings
from tf_transformer.models.hugging_face.translation_tokenizers import TranslationTokenizer

__all__ = ["TranslationTokenizer", "generation_settings", "load", "save_pretrained"]
