"""Architectures: JSON, errors, and what a model makes of them."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import (
    AlibiPositions,
    Architecture,
    LearnedPositions,
    NoPositions,
    Positional_Encoding,
    RotaryPositions,
    ShawPositions,
    SinusoidalPositions,
    T5Positions,
    Transformer,
)

PARTS = [
    AlibiPositions(),
    LearnedPositions(9),
    NoPositions(),
    RotaryPositions(500.0, 2.0, "halves"),
    ShawPositions(3),
    SinusoidalPositions(),
    T5Positions(8, 11),
]
every_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)


def model_of(part, **options):
    model = Transformer(2, 8, 2, 11, 13, 13, 7, 7, architecture=Architecture(part), **options)
    model.build()
    return model


@every_part
def test_json_round_trip(part):
    choice = Architecture(part)
    again = Architecture.from_json(choice.to_json())
    assert again == choice and hash(again) == hash(choice)
    assert type(again.positions) is type(part)
    others = [Architecture(other) for other in PARTS if other is not part]
    assert choice not in others


def test_settings_are_kept():
    text = Architecture(RotaryPositions(500.0, 2.0, "halves", dtype="bfloat16")).to_json()
    assert json.loads(text)["positions"] == {
        "part": "RotaryPositions",
        "base": 500.0,
        "stretch": 2.0,
        "pairing": "halves",
    }
    assert Architecture.from_dict({}) == Architecture(SinusoidalPositions())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"position": {}}, "architecture: expected fields among positions, got 'position'"),
        ({"position": {}}, r"did you mean 'positions'\?"),
        ({"positions": {"part": "RotaryPosition"}}, r"did you mean 'RotaryPositions'\?"),
        ({"positions": "rotary"}, 'positions: expected {"part": NAME, ...}, got .rotary.'),
        ({"positions": {}}, "positions: expected a part among AlibiPositions, .* got None"),
        ({"positions": {"part": "NoPositions", "base": 3}}, "NoPositions among none, got 'base'"),
        ({"positions": {"part": "RotaryPositions", "bas": 3}}, r"did you mean 'base'\?"),
        ({"positions": {"part": "ShawPositions", "max_distance": 0}}, "at least 1, got 0"),
    ],
)
def test_wrong_configs(config, message):
    with pytest.raises(ValueError, match=message):
        Architecture.from_dict(config)


def test_fewer_learned_positions_than_the_model_may_decode():
    with pytest.raises(ValueError, match="positions: expected at least 7 positions.* got 5 of Le"):
        model_of(LearnedPositions(5))


def test_what_is_not_a_part():
    with pytest.raises(ValueError, match="positions: expected a part of layers.positions"):
        Architecture(positions="rotary")
    with pytest.raises(ValueError, match="positions: expected a part"):
        Architecture(Positional_Encoding())


@pytest.mark.parametrize(
    ("part", "weights"),
    [
        (NoPositions(), 0),
        (RotaryPositions(), 0),
        (AlibiPositions(), 0),
        (SinusoidalPositions(), 0),
        (LearnedPositions(9), 2 * 9 * 8),  # in two stacks
        (T5Positions(6, 11), 2 * 2 * 6),  # 2 stacks, 2 heads
        (ShawPositions(3), 4 * 2 * 7 * 4),  # 4 layers, keys and values
    ],
    ids=lambda x: type(x).__name__ if hasattr(x, "name") else "",
)
def test_a_model_has_its_own_parts(part, weights):
    plain = Transformer(2, 8, 2, 11, 13, 13, 7, 7)
    plain.build()
    model = model_of(part)
    assert model.count_params() == plain.count_params() + weights
    assert len({id(w) for w in model.weights}) == len(model.weights)
    assert not part.built, "the model built the given part instead of a copy"
    again = Transformer.from_config(model.get_config())
    again.build()
    again.set_weights(model.get_weights())
    inputs = tf.constant([[3, 4, 2]]), tf.constant([[1, 5]])
    np.testing.assert_allclose(again(inputs), model(inputs), atol=1e-6)


@every_part
def test_order_changes_the_logits_only_if_the_part_tells_it(part):
    """The encoder is blind to order without positions; the causal decoder is not."""
    model = model_of(part)
    weights = np.random.default_rng(1)
    model.set_weights([0.5 * weights.standard_normal(w.shape) for w in model.get_weights()])
    target = tf.constant([[1, 5]])
    one, other = (model((tf.constant([ids]), target)) for ids in ([3, 4, 7, 2], [7, 3, 4, 2]))
    same = np.allclose(one, other, atol=1e-4)
    assert same == isinstance(part, NoPositions)


@every_part
def test_a_keras_file_holds_the_part(part, tmp_path):
    model = model_of(part)
    inputs = tf.constant([[3, 4, 2]]), tf.constant([[1, 5]])
    expected = model(inputs)
    model.save_weights(tmp_path / "model.weights.h5")
    again = model_of(part)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(again(inputs), expected, atol=1e-6)


def test_positions_beyond_those_of_training():
    inputs = tf.ones((1, 50), tf.int32), tf.ones((1, 40), tf.int32)
    for part in (RotaryPositions(), AlibiPositions(), T5Positions(8, 11), ShawPositions(3)):
        assert np.isfinite(model_of(part)(inputs)).all()
    with pytest.raises(ValueError, match="the table holds 7 positions"):
        Transformer(2, 8, 2, 11, 13, 13, 7, 7)(inputs)
