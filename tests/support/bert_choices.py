"""BERT with the parts of an `Architecture`: a model of each choice, and its inputs.

Axes: B=3 batch, T=7 length, D=24 width, N=4 heads, F=11 inner width, L=3 layers.
"""

import dataclasses

import numpy as np
import pytest
from random_weights import randomize

from tf_transformer import (
    AlibiPositions,
    Architecture,
    BatchNorm,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    MacaronFeedForward,
    NaiveBatchNorm,
    NoPositions,
    NoResidual,
    PreNorm,
    RMSNorm,
    RotaryPositions,
    ShawPositions,
    T5Positions,
    bert,
)

CONFIG = bert.BertConfig(
    vocab_size=13,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=11,
    max_position_embeddings=7,
    type_vocab_size=3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    labels=("a", "b"),
)
ALBERT = dataclasses.replace(CONFIG, embedding_size=10, num_hidden_groups=2)

CHOICES = {
    "paper": Architecture(),
    "learned, RMS, SwiGLU": Architecture(
        LearnedPositions(9), RMSNorm(1e-3), feed_forward=GatedFeedForward()
    ),
    "rotary, pre-norm, Macaron": Architecture(
        RotaryPositions(), residual=PreNorm(), feed_forward=MacaronFeedForward("gelu_new")
    ),
    "ALiBi, no residual, multi-query": Architecture(
        AlibiPositions(), residual=NoResidual(), num_key_value_heads=1, key_dim=5
    ),
    "T5, batch, grouped": Architecture(
        T5Positions(6, 5), BatchNorm(epsilon=1e-3), num_key_value_heads=2
    ),
    "Shaw, batch, pre-norm": Architecture(ShawPositions(2), BatchNorm(epsilon=1e-3), PreNorm()),
    "Shaw, grouped, wide": Architecture(
        ShawPositions(9), num_key_value_heads=2, key_dim=8, window=1
    ),
    "rotary, naive batch": Architecture(
        RotaryPositions(500.0, 2.0, "halves"), NaiveBatchNorm(epsilon=1e-3)
    ),
    "none, shared, GELU": Architecture(
        NoPositions(), LayerNorm(0.1), feed_forward=FeedForward("gelu"), share_qk=True, key_dim=7
    ),
}
FEW = ["rotary, pre-norm, Macaron", "T5, batch, grouped", "Shaw, grouped, wide"]
few_choices = pytest.mark.parametrize("choice", [CHOICES[name] for name in FEW], ids=FEW)
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)

PADDING = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]])
_RNG = np.random.default_rng(2)
BY_QUERY = (_RNG.random((3, 7, 7)) > 0.5).astype(np.int32)
BY_QUERY[0, :, 4] = 0  # a key that no query attends to
BY_QUERY[..., 2] = 1
MASKS = {"padding": PADDING, "by query": BY_QUERY, "by query, rank 4": BY_QUERY[:, None]}
INPUTS = {
    "input_ids": _RNG.integers(0, 13, (3, 7)),
    "token_type_ids": _RNG.integers(0, 3, (3, 7)),
    "attention_mask": PADDING,
}


def made(choice, cls=bert.Bert, config=CONFIG, **options):
    model = cls(config, architecture=choice, **options)
    model.build()
    return randomize(model, 3)


def twin(model, **options):
    other = type(model).from_config({**model.get_config(), **options})
    other.build()
    other.set_weights(model.get_weights())
    return other


def numbers(model):
    return {name: variable.numpy() for name, variable in model.variables_by_name().items()}


def outputs(model, inputs, training=False):
    results = model(inputs, training=training, return_hidden_states=True)
    return [*results["hidden_states"], results["pooled_output"]]


def close(actual, expected, tolerance):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance * np.abs(other).max())
