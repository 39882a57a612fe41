"""Exported models: SavedModels and their model cards, a folder for each thing that is served."""

from tf_transformer.export.chain import compress
from tf_transformer.export.classification import EarlyExitClassifier, TextClassifier
from tf_transformer.export.compile_for import compile_for
from tf_transformer.export.freeze import freeze
from tf_transformer.export.litert.write_litert import write_litert
from tf_transformer.export.sentences.text_encoder import TextEncoder
from tf_transformer.export.sentences.vector_index import VectorIndex
from tf_transformer.export.sentences.embedding import embed_lines
from tf_transformer.export.sentences.embedding import nearest
from tf_transformer.export.sentences.vector_index import write_index
from tf_transformer.export.sentences.embedding import write_vectors
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
