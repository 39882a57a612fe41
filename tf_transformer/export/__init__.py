"""Exported models: SavedModel and its card."""

from tf_transformer.export.embedding import embed_lines, nearest, write_vectors
from tf_transformer.export.stablehlo import stablehlo
from tf_transformer.export.text_classifier import TextClassifier
from tf_transformer.export.text_encoder import TextEncoder
from tf_transformer.export.translator import Translator
from tf_transformer.export.warm_up import warm_up

__all__ = [
    "TextClassifier",
    "TextEncoder",
    "Translator",
    "embed_lines",
    "nearest",
    "stablehlo",
    "warm_up",
    "write_vectors",
]
