"""Keras layers, with the names used in the notes; a file for each kind."""

from tf_transformer.layers.architecture import Architecture
from tf_transformer.layers.complex import (
    ComplexDense,
    ComplexDropout,
    ComplexEmbedding,
    ComplexFeedForward,
    ComplexLayerNorm,
    ComplexToReal,
)
from tf_transformer.layers.complex_encoder import (
    ComplexEncoder,
    ComplexEncoderLayer,
    ComplexMultiHeadAttention,
)
from tf_transformer.layers.decoder import Decoder, DecoderLayer
from tf_transformer.layers.embeddings import TokenEmbedding
from tf_transformer.layers.encoder import Encoder, EncoderLayer, recompute_layers
from tf_transformer.layers.feed_forwards import (
    FeedForward,
    FlatDense,
    GatedDense,
    GatedFeedForward,
    MacaronFeedForward,
    point_wise_feed_forward_network,
)
from tf_transformer.layers.multi_head_attention import MultiHeadAttention
from tf_transformer.layers.norms import BatchNorm, LayerNorm, NaiveBatchNorm, RMSNorm
from tf_transformer.layers.positions import (
    AlibiPositions,
    LearnedPositions,
    NoPositions,
    Positional_Encoding,
    RotaryPositions,
    ShawPositions,
    SinusoidalPositions,
    T5Positions,
)
from tf_transformer.layers.residuals import Dropout, NoResidual, PostNorm, PreNorm
from tf_transformer.layers.scored_attention import (
    AdditiveAttention,
    BilinearAttention,
    MultiplicativeAttention,
)

__all__ = [
    "AdditiveAttention",
    "AlibiPositions",
    "Architecture",
    "BatchNorm",
    "BilinearAttention",
    "ComplexDense",
    "ComplexDropout",
    "ComplexEmbedding",
    "ComplexEncoder",
    "ComplexEncoderLayer",
    "ComplexFeedForward",
    "ComplexLayerNorm",
    "ComplexMultiHeadAttention",
    "ComplexToReal",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "FlatDense",
    "GatedDense",
    "GatedFeedForward",
    "LayerNorm",
    "LearnedPositions",
    "MacaronFeedForward",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "NaiveBatchNorm",
    "NoPositions",
    "NoResidual",
    "Positional_Encoding",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "RotaryPositions",
    "ShawPositions",
    "SinusoidalPositions",
    "T5Positions",
    "TokenEmbedding",
    "point_wise_feed_forward_network",
    "recompute_layers",
]
