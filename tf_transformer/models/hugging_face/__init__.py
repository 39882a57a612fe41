"""Published Transformers in Hugging Face's folders: read, written, exactly."""

from tf_transformer.models.hugging_face.folders import load, save_pretrained

__all__ = ["load", "save_pretrained"]
