"""Exported models: SavedModels with model cards, LiteRT, StableHLO and vector indices."""

from tf_transformer.export.chain import compress
from tf_transformer.export.compile_for import compile_for, warm_up_in_background
from tf_transformer.export.saving import StoredWeights, freeze, stablehlo
from tf_transformer.export.spans import QuestionAnswerer, TokenClassifier
from tf_transformer.export.text_generator import TextGenerator, stream_text
from tf_transformer.export.text_models import (
    EarlyExitClassifier,
    MaskFiller,
    TextClassifier,
    TextEncoder,
)
from tf_transformer.export.translation.folder import (
    load_transformer,
    load_translator,
    save_translator,
    shipped_model,
)
from tf_transformer.export.translation.translate_texts import (
    Sampling,
    n_best_translations,
    translate_file,
    translate_texts,
)
from tf_transformer.export.translation.translator import IdTranslator, Translator
from tf_transformer.export.vector_index import (
    VectorIndex,
    embed_lines,
    nearest,
    write_index,
    write_vectors,
)
from tf_transformer.export.write_litert import write_litert

__all__ = [
    "EarlyExitClassifier",
    "IdTranslator",
    "MaskFiller",
    "QuestionAnswerer",
    "Sampling",
    "StoredWeights",
    "TextClassifier",
    "TextEncoder",
    "TextGenerator",
    "TokenClassifier",
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
    "stream_text",
    "translate_file",
    "translate_texts",
    "warm_up_in_background",
    "write_index",
    "write_litert",
    "write_vectors",
]
