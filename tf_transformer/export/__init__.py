"""Exported models: SavedModels and their model cards, a folder for each thing that is served."""

from tf_transformer.export.chain import compress
from tf_transformer.export.classification import EarlyExitClassifier, TextClassifier
from tf_transformer.export.compile_for import compile_for
from tf_transformer.export.freeze import freeze
from tf_transformer.export.litert import write_litert
from tf_transformer.export.sentences import (
    TextEncoder,
    VectorIndex,
    embed_lines,
    nearest,
    write_index,
    write_vectors,
)
from tf_transformer.export.stablehlo import stablehlo
from tf_transformer.export.stored_weights import StoredWeights
from tf_transformer.export.translation import (
    IdTranslator,
    Sampling,
    Translator,
    load_transformer,
    load_translator,
    n_best_translations,
    save_translator,
    shipped_model,
    translate_file,
    translate_texts,
)
from tf_transformer.export.warm_up import warm_up, warm_up_in_background
from tf_transformer.moved import keep_old_paths

__all__ = [
    "EarlyExitClassifier",
    "IdTranslator",
    "Sampling",
    "StoredWeights",
    "TextClassifier",
    "TextEncoder",
    "Translator",
    "VectorIndex",
    "compile_for",
    "compress",
    "embed_lines",
    "freeze",
    "load_transformer",
    "load_translator",
    "n_best_translations",
    "nearest",
    "save_translator",
    "shipped_model",
    "stablehlo",
    "translate_file",
    "translate_texts",
    "warm_up",
    "warm_up_in_background",
    "write_index",
    "write_litert",
    "write_vectors",
]

keep_old_paths(
    __name__,
    {
        "embedding": "sentences.embedding",
        "id_translator": "translation.id_translator",
        "in_parts": "translation.in_parts",
        "saved_translator": "translation.saved_translator",
        "shipped_models": "translation.shipped_models",
        "text_classifier": "classification.text_classifier",
        "text_encoder": "sentences.text_encoder",
        "translate_file": "translation.translate_file",
        "translate_texts": "translation.translate_texts",
        "translator": "translation.translator",
    },
)
