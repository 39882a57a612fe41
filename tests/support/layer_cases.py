"""Every layer of the library with its calls, for the harness.

Axes: B=2 batch, T=3 target length, S=5 source length, N=7 heads, D=14 width, F=11 feed-forward.
"""

import numpy as np
import reference_numpy as ref
from layer_harness import Case

from tf_transformer.layers import (
    AdditiveAttention,
    Architecture,
    BatchNorm,
    BilinearAttention,
    ComplexDense,
    ComplexDropout,
    ComplexEmbedding,
    ComplexEncoder,
    ComplexEncoderLayer,
    ComplexFeedForward,
    ComplexLayerNorm,
    ComplexMultiHeadAttention,
    ComplexToReal,
    Decoder,
    DecoderLayer,
    Dropout,
    Encoder,
    EncoderLayer,
    FeedForward,
    FlatDense,
    GatedDense,
    GatedFeedForward,
    LayerNorm,
    MacaronFeedForward,
    MultiHeadAttention,
    MultiplicativeAttention,
    Positional_Encoding,
    PreNorm,
    RMSNorm,
    ShawPositions,
    T5Positions,
    TokenEmbedding,
)
from tf_transformer.models import LanguageModel, Transformer

N, D, F = 7, 14, 11


def floats(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def complexes(*shape):
    return (floats(*shape) + 1j * floats(*shape, 1)[..., 0]).astype(np.complex64)


def ids(batch, length):
    """Token ids below 13, with padding inside the first row and at the end of the last."""
    tokens = np.random.default_rng((batch, length)).integers(1, 13, (batch, length), np.int32)
    if length > 1:
        tokens[0, 1] = tokens[-1, -1] = 0
    return tokens


def attention_call(batch, target, source):
    return {
        "q": floats(batch, target, D),
        "k": floats(batch, source, D),
        "v": floats(batch, source, D + 2),
        "mask": ref.padding_mask(ids(batch, source)),
    }


def complex_attention_call(batch, target, source):
    return {
        "q": complexes(batch, target, D),
        "k": complexes(batch, source, D),
        "v": complexes(batch, source, D + 2),
        "mask": ref.padding_mask(ids(batch, source)),
    }


def complex_encoder_layer_call(batch, length):
    return {"x": complexes(batch, length, D), "mask": ids(batch, length) != 0}


def complex_case(make):
    """A case of a layer that returns complex tensors, with one complex input."""
    calls = tuple({"x": complexes(*lengths, D)} for lengths in SELF_LENGTHS)
    return Case(make, calls, full_precision=True)


def scored_call(batch, target, source, width=D - 1):
    """One head, so the mask has no axis for heads."""
    return {
        "q": floats(batch, target, D),
        "k": floats(batch, source, width),
        "v": floats(batch, source, D + 2),
        "mask": ref.padding_mask(ids(batch, source))[:, 0],
    }


def bias(batch, target, source):
    return floats(1, N, target, source)


def encoder_layer_call(batch, length):
    return {"x": floats(batch, length, D), "mask": ids(batch, length) != 0}


def decoder_masks(batch, target, source):
    _, combined, padding = ref.create_masks(ids(batch, source), ids(batch, target))
    return {"look_ahead_mask": combined, "padding_mask": padding}


def decoder_layer_call(batch, target, source):
    return {
        "x": floats(batch, target, D),
        "enc_output": floats(batch, source, D),
        **decoder_masks(batch, target, source),
    }


def decoder_call(batch, target, source):
    return {**decoder_layer_call(batch, target, source), "x": ids(batch, target)}


def encoder_call(batch, length):
    tokens = ids(batch, length)
    return {"x": tokens, "mask": ref.padding_mask(tokens)}


def transformer_call(batch, target, source):
    return {"inputs": (ids(batch, source), ids(batch, target))}


def transformer(**kwargs):
    return Transformer(1, D, N, F, 13, 19, pe_input=8, pe_target=9, **kwargs)


def language_model(**kwargs):
    return LanguageModel(1, D, N, F, 13, max_position=8, **kwargs)


def shared_transformer(**kwargs):
    return Transformer(1, D, N, F, 13, 13, pe_input=8, pe_target=9, share_embeddings=True, **kwargs)


MODERN = Architecture(
    norm=RMSNorm(),
    residual=PreNorm(),
    feed_forward=GatedFeedForward(),
    key_dim=3,
    num_key_value_heads=1,
)
LIKE_BERT = Architecture(norm=LayerNorm(1e-12), feed_forward=FeedForward("gelu"))
MACARON = Architecture(norm=BatchNorm(), feed_forward=MacaronFeedForward("gelu"))
LENGTHS = ((2, 3, 5), (1, 1, 4), (3, 6, 2))
SELF_LENGTHS = ((2, 5), (1, 1), (3, 7))

CASES = {
    "Positional_Encoding": Case(
        lambda **kwargs: Positional_Encoding(max_position=9, **kwargs),
        tuple({"x": floats(*lengths, D)} for lengths in SELF_LENGTHS),
        {"start": 2},
    ),
    "TokenEmbedding": Case(
        lambda **kwargs: TokenEmbedding(13, D, max_position=9, **kwargs),
        tuple({"ids": ids(*lengths)} for lengths in SELF_LENGTHS),
    ),
    "Dropout": Case(
        lambda **kwargs: Dropout(0.3, **kwargs),
        tuple({"inputs": floats(*lengths, D)} for lengths in SELF_LENGTHS),
    ),
    "FlatDense": Case(
        lambda **kwargs: FlatDense(F, activation="gelu", **kwargs),
        tuple({"inputs": floats(*lengths, D)} for lengths in SELF_LENGTHS),
    ),
    "LayerNorm": Case(
        lambda **kwargs: LayerNorm(0.1, **kwargs),
        tuple({"inputs": floats(*lengths, D)} for lengths in SELF_LENGTHS),
    ),
    "GatedDense": Case(
        lambda **kwargs: GatedDense(F, activation="gelu", **kwargs),
        tuple({"inputs": floats(*lengths, D)} for lengths in SELF_LENGTHS),
    ),
    "RMSNorm": Case(
        lambda **kwargs: RMSNorm(0.1, **kwargs),
        tuple({"inputs": floats(*lengths, D)} for lengths in SELF_LENGTHS),
    ),
    "BatchNorm": Case(
        lambda **kwargs: BatchNorm(epsilon=0.1, **kwargs),
        tuple({"inputs": floats(*x, D), "tokens": ids(*x) != 0} for x in SELF_LENGTHS),
    ),
    "MultiHeadAttention": Case(
        lambda **kwargs: MultiHeadAttention(D, N, **kwargs),
        tuple(attention_call(*lengths) for lengths in LENGTHS),
    ),
    "MultiHeadAttention, no weights": Case(
        lambda **kwargs: MultiHeadAttention(D, N, **kwargs),
        tuple(attention_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": False},
    ),
    "MultiHeadAttention, multi-query": Case(
        lambda **kwargs: MultiHeadAttention(D, N, num_key_value_heads=1, key_dim=3, **kwargs),
        tuple(attention_call(*lengths) for lengths in LENGTHS),
    ),
    "MultiHeadAttention, a bias and causal": Case(
        lambda **kwargs: MultiHeadAttention(D, N, **kwargs),
        tuple(attention_call(*lengths) | {"bias": bias(*lengths)} for lengths in LENGTHS),
        {"causal": True},
    ),
    "AdditiveAttention": Case(
        lambda **kwargs: AdditiveAttention(F, **kwargs),
        tuple(scored_call(*lengths) for lengths in LENGTHS),
    ),
    "AdditiveAttention, no weights, causal": Case(
        lambda **kwargs: AdditiveAttention(F, **kwargs),
        tuple(scored_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": False, "causal": True},
    ),
    "BilinearAttention": Case(
        BilinearAttention,
        tuple(scored_call(*lengths) for lengths in LENGTHS),
    ),
    "BilinearAttention, no weights, causal": Case(
        BilinearAttention,
        tuple(scored_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": False, "causal": True},
    ),
    "MultiplicativeAttention": Case(
        MultiplicativeAttention,
        tuple(scored_call(*lengths, D) for lengths in LENGTHS),
    ),
    "EncoderLayer": Case(
        lambda **kwargs: EncoderLayer(D, N, F, **kwargs),
        tuple(encoder_layer_call(*lengths) for lengths in SELF_LENGTHS),
    ),
    "EncoderLayer, like BERT's": Case(
        lambda **kwargs: EncoderLayer(D, N, F, architecture=LIKE_BERT, **kwargs),
        tuple(encoder_layer_call(*lengths) for lengths in SELF_LENGTHS),
    ),
    "EncoderLayer, grouped, gated, pre-norm": Case(
        lambda **kwargs: EncoderLayer(D, N, F, architecture=MODERN, **kwargs),
        tuple(encoder_layer_call(*lengths) for lengths in SELF_LENGTHS),
        {"causal": True},
    ),
    "EncoderLayer, Macaron, batch norm": Case(
        lambda **kwargs: EncoderLayer(D, N, F, architecture=MACARON, **kwargs),
        tuple(
            encoder_layer_call(*lengths) | {"tokens": ids(*lengths) != 0}
            for lengths in SELF_LENGTHS
        ),
    ),
    "DecoderLayer": Case(
        lambda **kwargs: DecoderLayer(D, N, F, **kwargs),
        tuple(decoder_layer_call(*lengths) for lengths in LENGTHS),
    ),
    "DecoderLayer, no weights, causal": Case(
        lambda **kwargs: DecoderLayer(D, N, F, **kwargs),
        tuple(decoder_layer_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": False, "causal": True},
    ),
    "Encoder": Case(
        lambda **kwargs: Encoder(1, D, N, F, 13, 8, **kwargs),
        tuple(encoder_call(*lengths) for lengths in SELF_LENGTHS),
    ),
    "Decoder": Case(
        lambda **kwargs: Decoder(1, D, N, F, 19, 8, **kwargs),
        tuple(decoder_call(*lengths) for lengths in LENGTHS),
    ),
    "Decoder, no weights, causal": Case(
        lambda **kwargs: Decoder(1, D, N, F, 19, 8, **kwargs),
        tuple(decoder_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": False, "causal": True},
    ),
    "Encoder, causal": Case(
        lambda **kwargs: Encoder(1, D, N, F, 13, 8, **kwargs),
        tuple(encoder_call(*lengths) for lengths in SELF_LENGTHS),
        {"causal": True},
    ),
    "LanguageModel": Case(
        language_model,
        tuple({"ids": ids(*lengths)} for lengths in SELF_LENGTHS),
    ),
    "LanguageModel, grouped, gated, pre-norm": Case(
        lambda **kwargs: language_model(architecture=MODERN, **kwargs),
        tuple({"ids": ids(*lengths)} for lengths in SELF_LENGTHS),
    ),
    "ComplexEmbedding": Case(
        lambda **kwargs: ComplexEmbedding(13, D, **kwargs),
        tuple({"ids": ids(*lengths)} for lengths in SELF_LENGTHS),
        {"start": 3},
        full_precision=True,
    ),
    "ComplexEmbedding, shared": Case(
        lambda **kwargs: ComplexEmbedding(
            13, D, "word-sharing", "word-sharing", "dimension-sharing", **kwargs
        ),
        tuple({"ids": ids(*lengths)} for lengths in SELF_LENGTHS),
        full_precision=True,
    ),
    "ComplexDense": complex_case(lambda **kwargs: ComplexDense(F, "gelu", **kwargs)),
    "ComplexDropout": complex_case(lambda **kwargs: ComplexDropout(0.3, **kwargs)),
    "ComplexFeedForward": complex_case(lambda **kwargs: ComplexFeedForward(D, F, **kwargs)),
    "ComplexLayerNorm": complex_case(lambda **kwargs: ComplexLayerNorm(0.1, **kwargs)),
    "ComplexToReal": Case(
        lambda **kwargs: ComplexToReal(F, "tanh", **kwargs),
        tuple({"x": complexes(*lengths, D)} for lengths in SELF_LENGTHS),
    ),
    "ComplexMultiHeadAttention": Case(
        lambda **kwargs: ComplexMultiHeadAttention(D, N, **kwargs),
        tuple(complex_attention_call(*lengths) for lengths in LENGTHS),
        full_precision=True,
    ),
    "ComplexMultiHeadAttention, no weights": Case(
        lambda **kwargs: ComplexMultiHeadAttention(D, N, **kwargs),
        tuple(complex_attention_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": False},
        full_precision=True,
    ),
    "ComplexEncoderLayer": Case(
        lambda **kwargs: ComplexEncoderLayer(D, N, F, activation="gelu", **kwargs),
        tuple(complex_encoder_layer_call(*lengths) for lengths in SELF_LENGTHS),
        full_precision=True,
    ),
    "ComplexEncoder": Case(
        lambda **kwargs: ComplexEncoder(1, D, N, F, 13, phases="zero", **kwargs),
        tuple(encoder_call(*lengths) for lengths in SELF_LENGTHS),
        full_precision=True,
    ),
    "Transformer": Case(
        transformer,
        tuple(transformer_call(*lengths) for lengths in LENGTHS),
    ),
    "Transformer, Shaw's positions": Case(
        lambda **kwargs: transformer(architecture=Architecture(ShawPositions(2)), **kwargs),
        tuple(transformer_call(*lengths) for lengths in LENGTHS),
    ),
    "Transformer, T5's positions": Case(
        lambda **kwargs: transformer(architecture=Architecture(T5Positions(4, 5)), **kwargs),
        tuple(transformer_call(*lengths) for lengths in LENGTHS),
    ),
    "Transformer, grouped, gated, pre-norm": Case(
        lambda **kwargs: transformer(architecture=MODERN, **kwargs),
        tuple(transformer_call(*lengths) for lengths in LENGTHS),
    ),
    "Transformer, Macaron, batch norm": Case(
        lambda **kwargs: transformer(architecture=MACARON, **kwargs),
        tuple(transformer_call(*lengths) for lengths in LENGTHS),
    ),
    "Transformer, shared embeddings": Case(
        shared_transformer,
        tuple(transformer_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": True},
    ),
}
