"""Exported models: SavedModel and its card."""

from tf_transformer.export.translator import Translator

__all__ = ["Translator"]
