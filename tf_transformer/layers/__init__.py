"""Keras layers, one public class per file, with the names used in the notes."""

from tf_transformer.layers.additive_attention import AdditiveAttention
from tf_transformer.layers.architecture import Architecture
from tf_transformer.layers.bilinear_attention import BilinearAttention
from tf_transformer.layers.complex import (
    ComplexDense,
    ComplexDropout,
    ComplexEmbedding,
    ComplexEncoder,
    ComplexEncoderLayer,
    ComplexFeedForward,
    ComplexLayerNorm,
    ComplexMultiHeadAttention,
    ComplexToReal,
)
from tf_transformer.layers.decoder import Decoder
from tf_transformer.layers.decoder_layer import DecoderLayer
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.encoder import Encoder
from tf_transformer.layers.encoder_layer import EncoderLayer
from tf_transformer.layers.feed_forwards import FeedForward, GatedFeedForward, MacaronFeedForward
from tf_transformer.layers.feed_forwards.gated_dense import GatedDense
from tf_transformer.layers.feed_forwards.network import point_wise_feed_forward_network
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.multi_head_attention import MultiHeadAttention
from tf_transformer.layers.multiplicative_attention import MultiplicativeAttention
from tf_transformer.layers.norms import BatchNorm, LayerNorm, NaiveBatchNorm, RMSNorm
from tf_transformer.layers.positional_encoding import Positional_Encoding
from tf_transformer.layers.positions import (
    AlibiPositions,
    LearnedPositions,
    NoPositions,
    RotaryPositions,
    ShawPositions,
    SinusoidalPositions,
    T5Positions,
)
from tf_transformer.layers.residuals import NoResidual, PostNorm, PreNorm
from tf_transformer.layers.token_embedding import TokenEmbedding
from tf_transformer.moved import keep_old_paths

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
]

keep_old_paths(
    __name__, {"feed_forward": "feed_forwards.network", "layer_norm": "norms.layer_norm"}
)
