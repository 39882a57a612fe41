"""Keras layers, one public class per file, with the names used in the notes."""

from tf_transformer.layers.additive_attention import AdditiveAttention
from tf_transformer.layers.architecture import Architecture
from tf_transformer.layers.bilinear_attention import BilinearAttention
from tf_transformer.layers.decoder import Decoder
from tf_transformer.layers.decoder_layer import DecoderLayer
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.encoder import Encoder
from tf_transformer.layers.encoder_layer import EncoderLayer
from tf_transformer.layers.feed_forward import point_wise_feed_forward_network
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.layer_norm import LayerNorm
from tf_transformer.layers.multi_head_attention import MultiHeadAttention
from tf_transformer.layers.multiplicative_attention import MultiplicativeAttention
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
from tf_transformer.layers.token_embedding import TokenEmbedding

__all__ = [
    "AdditiveAttention",
    "AlibiPositions",
    "Architecture",
    "BilinearAttention",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FlatDense",
    "LayerNorm",
    "LearnedPositions",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "NoPositions",
    "Positional_Encoding",
    "RotaryPositions",
    "ShawPositions",
    "SinusoidalPositions",
    "T5Positions",
    "TokenEmbedding",
    "point_wise_feed_forward_network",
]
