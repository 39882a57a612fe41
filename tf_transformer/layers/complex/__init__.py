"""Complex-valued layers: word embeddings over positions, and an encoder for them."""

from tf_transformer.layers.complex.complex_dense import ComplexDense
from tf_transformer.layers.complex.complex_dropout import ComplexDropout
from tf_transformer.layers.complex.complex_embedding import ComplexEmbedding
from tf_transformer.layers.complex.complex_encoder import ComplexEncoder
from tf_transformer.layers.complex.complex_encoder_layer import ComplexEncoderLayer
from tf_transformer.layers.complex.complex_feed_forward import ComplexFeedForward
from tf_transformer.layers.complex.complex_layer_norm import ComplexLayerNorm
from tf_transformer.layers.complex.complex_multi_head_attention import ComplexMultiHeadAttention
from tf_transformer.layers.complex.complex_to_real import ComplexToReal

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
