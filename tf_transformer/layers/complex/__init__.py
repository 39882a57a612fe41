"""Complex-valued layers: word embeddings over positions, and an encoder for them."""

from tf_transformer.layers.complex.encoder import (
    ComplexEncoder,
    ComplexEncoderLayer,
    ComplexMultiHeadAttention,
)
from tf_transformer.layers.complex.layers import (
    ComplexDense,
    ComplexDropout,
    ComplexEmbedding,
    ComplexFeedForward,
    ComplexLayerNorm,
    ComplexToReal,
)

__all__ = [
    "ComplexDense",
    "ComplexDropout",
    "ComplexEmbedding",
    "ComplexEncoder",
    "ComplexEncoderLayer",
    "ComplexFeedForward",
    "ComplexLayerNorm",
    "ComplexMultiHeadAttention",
    "ComplexToReal",
]
