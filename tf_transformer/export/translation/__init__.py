"""Exported translators: strings to strings."""

from tf_transformer.export.translation.id_translator import IdTranslator, Sampling
from tf_transformer.export.translation.translate_texts import (
    n_best_translations,
    translate_file,
    translate_texts,
)
from tf_transformer.export.translation.translator import (
    Translator,
    load_transformer,
    load_translator,
    save_translator,
    shipped_model,
)

__all__ = [
    "IdTranslator",
    "Sampling",
    "Translator",
    "load_transformer",
    "load_translator",
    "n_best_translations",
    "save_translator",
    "shipped_model",
    "translate_file",
    "translate_texts",
]
