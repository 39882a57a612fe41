"""Exported translators: strings to strings."""

from tf_transformer.export.translation.id_translator import IdTranslator
from tf_transformer.export.translation.sampling import Sampling
from tf_transformer.export.translation.saved_translator import (
    load_transformer,
    load_translator,
    save_translator,
)
from tf_transformer.export.translation.shipped_models import shipped_model
from tf_transformer.export.translation.translate_file import translate_file
from tf_transformer.export.translation.translate_texts import n_best_translations, translate_texts
from tf_transformer.export.translation.translator import Translator

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
