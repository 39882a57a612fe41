"""Architectures: JSON, errors, and what a model makes of them."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import (
    AlibiPositions,
    Architecture,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    Positional_Encoding,
    PreNorm,
    RotaryPositions,
    ShawPositions,
    SinusoidalPositions,
    T5Positions,
    Transformer,
)

pytestmark = pytest.mark.one_of(10, "layers")

PARTS = [
    AlibiPositions(),
    LearnedPositions(9),
    NoPositions(),
    Positional_Encoding(9),
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
        "bands": None,
    }
    other = Architecture(residual=PreNorm(), feed_forward=GatedFeedForward("gelu"), window=3)
    assert json.loads(other.to_json())["feed_forward"] == {
        "part": "GatedFeedForward",
        "activation": "gelu",
        "use_bias": True,
    }
    assert Architecture.from_json(other.to_json()) == other
    assert Architecture.from_dict({}) == Architecture(SinusoidalPositions())


FIELDS = (
    "positions, norm, residual, feed_forward, key_dim, num_key_value_heads, share_qk, window, "
    "num_groups, embedding_size, attention_bias, scale_embeddings, embedding_norm"
)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"position": {}}, f"architecture: expected fields among {FIELDS}, got 'position'"),
        ({"position": {}}, r"did you mean 'positions'\?"),
        ({"positions": {"part": "RotaryPosition"}}, r"did you mean 'RotaryPositions'\?"),
        ({"norm": {"part": "LayerNormalization"}}, r"norm: .*did you mean 'LayerNorm'\?"),
        ({"positions": "rotary"}, 'positions: expected {"part": NAME, ...}, got .rotary.'),
        ({"positions": {}}, "positions: expected a part among AlibiPositions, .* got None"),
        ({"residual": {"part": "Residual"}}, "among NoResidual, PostNorm, PreNorm, got 'Residual'"),
        ({"positions": {"part": "NoPositions", "base": 3}}, "NoPositions among none, got 'base'"),
        ({"positions": {"part": "RotaryPositions", "bas": 3}}, r"did you mean 'base'\?"),
        ({"positions": {"part": "ShawPositions", "max_distance": 0}}, "at least 1, got 0"),
        ({"feed_forward": {"part": "FeedForward", "activation": "glu"}}, "activation: .* 'glu'"),
        ({"window": 0}, "window: expected None or a positive int, got 0"),
        ({"key_dim": 2.5}, "key_dim: expected None or a positive int, got 2.5"),
        ({"share_qk": 1}, "share_qk: expected True or False, got 1"),
        ({"scale_embeddings": 0}, "scale_embeddings: expected True or False, got 0"),
        ({"embedding_norm": None}, "embedding_norm: expected True or False, got None"),
        ({"attention_bias": "k"}, "attention_bias: expected True, False or \"qkv\", got 'k'"),
        ({"feed_forward": {"part": "FeedForward", "use_bias": 1}}, "use_bias: expected True or"),
        ({"positions": {"part": "LearnedPositions", "max_position": 5, "offset": -1}}, "offset: "),
        ({"positions": {"part": "SinusoidalPositions", "pairing": "half"}}, "'halves'"),
        ({"positions": {"part": "RotaryPositions", "bands": [4, 1, 9]}}, "positive and ascending"),
    ],
)
def test_wrong_configs(config, message):
    with pytest.raises(ValueError, match=message):
        Architecture.from_dict(config)


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({"num_key_value_heads": 3}, "expected a divisor of num_heads=4, .* got 3"),
        ({"num_key_value_heads": 2, "share_qk": True}, "share_qk: expected as many heads"),
    ],
)
def test_heads_that_do_not_fit(heads, message):
    with pytest.raises(ValueError, match=message):
        EncoderLayer(8, 4, 16, architecture=Architecture(**heads))


def test_sizes_of_heads():
    with pytest.raises(ValueError, match="d_model to be a multiple of num_heads, .* set key_dim"):
        EncoderLayer(8, 3, 16)
    assert EncoderLayer(8, 3, 16, architecture=Architecture(key_dim=2)).mha.key_dim == 2
    with pytest.raises(ValueError, match="key_dim: expected at least 1, got 0"):
        MultiHeadAttention(8, 2, key_dim=0)


def test_fewer_learned_positions_than_the_model_may_decode():
    with pytest.raises(ValueError, match="positions: expected at least 7 positions.* got 5 of Le"):
        model_of(LearnedPositions(5))


def test_what_is_not_a_part():
    with pytest.raises(ValueError, match="positions: expected a part of layers.positions"):
        Architecture(positions="rotary")
    with pytest.raises(ValueError, match="positions: expected a part"):
        Architecture(LayerNorm())
    with pytest.raises(ValueError, match="residual: expected a part of layers.residuals"):
        Architecture(residual="pre")
    with pytest.raises(ValueError, match=r"norm: expected a layer with call.inputs, training, tok"):
        Architecture(norm=keras.layers.LayerNormalization())


def test_a_stack_without_layers_has_no_cache():
    model = Transformer((1, 0), 8, 2, 11, 13, 13, 7, 7)
    assert model((tf.constant([[3]]), tf.constant([[1]]))).shape == (1, 1, 13)
    with pytest.raises(ValueError, match="num_layers: expected at least 1 for decoding .*got 0"):
        model.start(tf.constant([[3]]), 2)


def test_functions_with_a_name_can_be_saved():
    choice = Architecture(feed_forward=FeedForward(tf.nn.relu))
    assert choice == Architecture() and hash(choice) == hash(Architecture())
    assert FeedForward(None).activation == "linear"
    other = Architecture(feed_forward=FeedForward(tf.math.softsign))
    assert other.feed_forward.network(4, 8)(tf.ones((1, 4))).shape == (1, 4)
    with pytest.raises(ValueError, match="activation: expected a name, which a file can hold, got"):
        other.to_json()


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    ("part", "weights"),
    [
        (NoPositions(), 0),
        (Positional_Encoding(9), 0),
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


@pytest.mark.one_of(10)
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


@pytest.mark.one_of(10)
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
    with pytest.raises(ValueError, match="at most 7 positions, the size of the table"):
        Transformer(2, 8, 2, 11, 13, 13, 7, 7)(inputs)


@every_part
def test_a_layer_with_the_part_has_a_config(part):
    layer = EncoderLayer(8, 2, 11, architecture=Architecture(part))
    config = json.loads(json.dumps(layer.get_config()))
    again = EncoderLayer.from_config(config)
    assert again.get_config() == config
    assert type(again.mha.positions) is type(layer.mha.positions)


def test_the_architecture_alone_says_which_positions():
    with pytest.raises(ValueError, match="positions: expected None or a part like the archit"):
        EncoderLayer(8, 2, 11, positions=RotaryPositions())
    choice = Architecture(RotaryPositions(500.0))
    with pytest.raises(ValueError, match="positions: .*'base': 500.0.* got .*'base': 10000.0"):
        EncoderLayer(8, 2, 11, architecture=choice, positions=RotaryPositions())
    part = RotaryPositions(500.0)
    assert EncoderLayer(8, 2, 11, architecture=choice, positions=part).mha.positions is part


def test_no_architecture_is_the_papers():
    ids = tf.constant([[3, 4, 2]]), tf.constant([[1, 5]])
    model, layer = Transformer(2, 8, 2, 11, 13, 13, 7, 6), EncoderLayer(8, 2, 11)
    assert layer.architecture == Architecture()
    for stack, longest in ((model.encoder, 7), (model.decoder, 6)):
        assert stack.architecture == Architecture(Positional_Encoding(longest))
    other = Transformer(2, 8, 2, 11, 13, 13, 7, 6, architecture=Architecture())
    expected = model(ids)
    other.build()
    other.set_weights(model.get_weights())
    assert [w.path.split("/", 1)[1] for w in other.weights] == [
        w.path.split("/", 1)[1] for w in model.weights
    ]
    np.testing.assert_allclose(other(ids), expected, atol=1e-6)
