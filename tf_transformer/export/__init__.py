"""Exported models: SavedModel and its card."""

from tf_transformer.export.translator import Translator
from tf_transformer.export.warm_up import warm_up

__all__ = ["Translator", "warm_up"]
