"""Exported models: SavedModel and its card."""

from tf_transformer.export.embedding import embed_lines, nearest, write_vectors
from tf_transformer.export.id_translator import IdTranslator
from tf_transformer.export.stablehlo import stablehlo
from tf_transformer.export.text_classifier import TextClassifier
from tf_transformer.export.text_encoder import TextEncoder
from tf_transformer.export.translate_file import translate_file
from tf_transformer.export.translate_texts import n_best_translations, translate_texts
from tf_transformer.export.translator import Translator
from tf_transformer.export.warm_up import warm_up

__all__ = [
    "IdTranslator",
    "TextClassifier",
    "TextEncoder",
    "Translator",
    "embed_lines",
    "n_best_translations",
    "nearest",
    "stablehlo",
    "translate_file",
    "translate_texts",
    "warm_up",
    "write_vectors",
]
