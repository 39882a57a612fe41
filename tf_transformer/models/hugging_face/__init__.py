"""Published Transformers in Hugging Face's folders: read, written, exactly."""

from tf_transformer.models.hugging_face.folders import load, save_pretrained
from tf_transformer.models.hugging_face.generation_settings import generation_settings

__all__ = ["generation_settings", "load", "save_pretrained"]
