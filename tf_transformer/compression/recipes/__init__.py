"""Recipes: the steps that make a model smaller, from a file; `export.compress` carries them out."""

from tf_transformer.compression.recipes.distil import Distil
from tf_transformer.compression.recipes.prune import Prune
from tf_transformer.compression.recipes.quantize import Quantize
from tf_transformer.compression.recipes.recipe import Recipe

__all__ = ["Distil", "Prune", "Quantize", "Recipe"]
