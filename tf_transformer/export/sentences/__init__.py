"""Exported sentence encoders: strings to vectors."""

from tf_transformer.export.sentences.embedding import embed_lines, nearest, write_vectors
from tf_transformer.export.sentences.text_encoder import TextEncoder
from tf_transformer.export.sentences.vector_index import VectorIndex, write_index

__all__ = [
    "TextEncoder",
    "VectorIndex",
    "embed_lines",
    "nearest",
    "write_index",
    "write_vectors",
]
