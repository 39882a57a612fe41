"""Exported models: SavedModel and its card."""

from tf_transformer.export.stablehlo import stablehlo
from tf_transformer.export.translator import Translator
from tf_transformer.export.warm_up import warm_up

__all__ = ["Translator", "stablehlo", "warm_up"]
