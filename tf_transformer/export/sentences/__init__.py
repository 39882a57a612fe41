"""Exported sentence encoders: strings to vectors."""

from tf_transformer.export.sentences.embedding import embed_lines, nearest, write_vectors
from tf_transformer.export.sentences.text_encoder import TextEncoder

__all__ = [
    "TextEncoder",
    "embed_lines",
    "nearest",
    "write_vectors",
]
