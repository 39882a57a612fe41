"""BERT with the parts of an `Architecture`, against the float64 reference.

Axes: B=3 batch, T=7 length, D=24 width, N=4 heads, F=11 inner width, L=3 layers.
"""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize
from reference_bert_architecture import BertReference

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
    additive_mask,
    bert,
)
from tf_transformer.models.bert.bert_architecture_layer import BertArchitectureLayer
from tf_transformer.models.bert.token_layout import padded_layout, tokens_in

pytestmark = pytest.mark.one_of(3)  # of the cases of each test

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


@pytest.mark.one_of(3)
@every_choice
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_outputs_are_those_of_the_reference(choice, mask):
    model, inputs = made(choice, dtype="float64"), {**INPUTS, "attention_mask": mask}
    expected = BertReference(numbers(model), choice.to_dict(), CONFIG).outputs(inputs)
    # TensorFlow 2.21 rounds the constants of GELU to float32.
    close(outputs(model, inputs), expected, 2e-6)


@pytest.mark.one_of(3)
@every_choice
def test_shared_layers_and_narrow_embeddings(choice):
    model = made(choice, config=ALBERT, dtype="float64")
    expected = BertReference(numbers(model), choice.to_dict(), ALBERT).outputs(INPUTS)
    close(outputs(model, INPUTS), expected, 2e-6)


@pytest.mark.one_of(3)
@every_choice
@pytest.mark.parametrize("mask", [PADDING, BY_QUERY], ids=["padding", "by query"])
def test_gradients_are_those_of_the_reference(choice, mask):
    """In training, along a random direction of all weights."""
    model, inputs = made(choice, dtype="float64"), {**INPUTS, "attention_mask": mask}
    rng = np.random.default_rng(5)
    upstream = rng.standard_normal((3, 7, 24))
    weights = numbers(model)
    variables = {v.path: v for v in model.trainable_variables}
    with tf.GradientTape() as tape:
        states = model(inputs, training=True)["sequence_output"]
        loss = tf.reduce_sum(states * upstream)
    names = [n for n, v in model.variables_by_name().items() if v.path in variables]
    names = [name for name in names if "pooler" not in name]
    values = [model.variables_by_name()[name].value for name in names]
    gradients = dict(
        zip(names, map(tf.convert_to_tensor, tape.gradient(loss, values)), strict=True)
    )
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    directions = {name: rng.standard_normal(weights[name].shape) for name in names}
    slope = sum(np.sum(gradients[name] * directions[name]) for name in names)

    def changed(step):
        moved = {name: w + step * directions.get(name, 0.0) for name, w in weights.items()}
        reference = BertReference(moved, choice.to_dict(), CONFIG, training=True)
        return np.sum(reference.hidden_states(*inputs.values())[-1] * upstream)

    expected = (changed(1e-6) - changed(-1e-6)) / 2e-6
    np.testing.assert_allclose(slope, expected, rtol=1e-4)


@pytest.mark.one_of(3)
@every_choice
def test_unpadded_is_padded(choice):
    model = made(choice)
    other = twin(model, unpad=True)
    keep = PADDING == 1
    one, another = outputs(model, INPUTS), outputs(other, INPUTS)
    close([x[keep] for x in another[:-1]], [x[keep] for x in one[:-1]], 1e-5)
    close(another[-1:], one[-1:], 1e-5)
    assert all((x.numpy()[~keep] == 0).all() for x in another[:-1])
    weights = [m(INPUTS, return_attentions=True)["attentions"][-1] for m in (model, other)]
    one, another = (np.moveaxis(w, 1, 2)[keep] for w in weights)
    np.testing.assert_allclose(another, one, atol=1e-5)


@pytest.mark.parametrize("name", ["T5, batch, grouped", "Shaw, batch, pre-norm"])
def test_unpadded_is_padded_in_training(name):
    model = made(CHOICES[name], dtype="float64")
    models = model, twin(model, unpad=True)
    gradients = []
    for one in models:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(one(INPUTS, training=True)["pooled_output"] ** 2)
        values = [weight.value for weight in one.trainable_weights]
        gradients.append([tf.convert_to_tensor(g) for g in tape.gradient(loss, values)])
    largest = max(np.abs(g).max() for g in gradients[0])
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9 * largest)
    close(*(m.get_weights() for m in models), 1e-9)  # the moving averages too


@pytest.mark.parametrize("name", ["rotary, pre-norm, Macaron", "T5, batch, grouped"])
def test_xla_agrees(name):
    model = made(CHOICES[name])
    compiled = tf.function(lambda inputs: model(inputs), jit_compile=True, autograph=False)
    inputs = {key: tf.constant(value) for key, value in INPUTS.items()}
    close([compiled(inputs)["sequence_output"]], [model(inputs)["sequence_output"]], 1e-4)


@few_choices
@pytest.mark.parametrize("unpad", [False, True])
def test_a_graph_with_unknown_sizes_agrees(choice, unpad):
    model = made(choice, unpad=unpad)
    spec = {name: tf.TensorSpec((None, None), tf.int64) for name in INPUTS}
    graph = tf.function(lambda inputs: model(inputs), input_signature=[spec])
    close([graph(INPUTS)["sequence_output"]], [model(INPUTS)["sequence_output"]], 1e-5)


@pytest.mark.parametrize(("policy", "tolerance"), [("bfloat16", 0.03), ("float16", 0.004)])
@few_choices
def test_half_precision(choice, policy, tolerance):
    model = made(choice)
    model.set_weights([w * (0.3 if w.ndim == 2 else 1.0) for w in model.get_weights()])
    half = twin(model, dtype=f"mixed_{policy}")
    expected = model(INPUTS)["sequence_output"]
    actual = half(INPUTS)["sequence_output"]
    assert actual.dtype == policy and np.isfinite(actual).all()
    error = np.abs(tf.cast(actual, tf.float32) - expected)
    assert np.mean(error) < tolerance * np.mean(np.abs(expected))


def test_an_architecture_can_be_that_of_bert():
    plain = made(None)
    choice = Architecture(LearnedPositions(7), LayerNorm(1e-12), feed_forward=FeedForward("gelu"))
    model = made(choice)
    ours = {
        "embeddings/LayerNorm": "embeddings/norm",
        "position_embeddings": "position_embeddings/table",
        "attention/output/LayerNorm": "attention_norm",
        "attention/output/dense": "attention/output",
        "intermediate/dense": "ffn/hidden",
        "/output/dense": "/ffn/output",
        "/output/LayerNorm": "/ffn_norm",
    }
    variables = model.variables_by_name()
    for name, values in numbers(plain).items():
        for theirs, mine in ours.items():
            name = name.replace(theirs, mine)
        variables.pop(name).assign(values)
    assert not variables
    close(outputs(model, INPUTS), outputs(plain, INPUTS), 1e-5)


@pytest.mark.one_of(3)
@every_choice
def test_a_folder_holds_the_architecture(choice, tmp_path):
    model = made(choice, bert.BertForSequenceClassification, ALBERT)
    model.save_pretrained(tmp_path / "model")
    content = json.loads((tmp_path / "model" / "config.json").read_text())
    assert content["model_type"] == "tf_transformer_bert"
    again = bert.BertForSequenceClassification.from_pretrained(tmp_path / "model")
    assert again.architecture == choice and again.config == model.config
    close(again.get_weights(), model.get_weights(), 0)
    np.testing.assert_array_equal(again(INPUTS), model(INPUTS))
    encoder = bert.Bert.from_pretrained(tmp_path / "model", unpad=True)  # without the head
    encoder.save_pretrained(tmp_path / "encoder")
    new = bert.BertForTokenClassification.from_pretrained(
        tmp_path / "encoder", new_head=True, labels=("c", "d", "e")
    )
    close(new.bert.encoder.get_weights(), model.bert.encoder.get_weights(), 0)


@pytest.mark.one_of(3)
@every_choice
def test_a_keras_file_and_a_config_hold_the_architecture(choice, tmp_path):
    model = made(choice, bert.BertForMaskedLM)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.architecture == again.bert.encoder.architecture == choice
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-5)
    layer = model.bert.encoder.groups[0]
    for part in (model.bert.embeddings, model.bert.encoder, layer, layer.attention):
        config = json.loads(json.dumps(part.get_config()))
        assert type(part).from_config(config).get_config() == config


@pytest.mark.one_of(3)
@few_choices
def test_steps_of_fit_change_every_weight(choice):
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    model = made(choice, bert.BertForSequenceClassification, config)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = model.get_weights()
    history = model.fit(INPUTS, np.array([0, 1, 1]), batch_size=3, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    changed = [np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert np.mean(changed) > 0.9


def test_weights_of_a_choice():
    """D=24, N=4, F=11, 3 layers: what differs from BERT, whose table has 7 positions."""
    plain = made(None).count_params()
    width = 24 * 24 + 24  # a projection
    for name, difference in {
        "paper": -7 * 24,
        "learned, RMS, SwiGLU": (9 - 7) * 24 - (2 * 3 + 1) * 24 + 3 * (24 * 11 + 11),
        "rotary, pre-norm, Macaron": -7 * 24 + 2 * 24 + 3 * (2 * 24 * 11 + 11 + 24 + 2 * 24),
        "ALiBi, no residual, multi-query": -7 * 24
        + 3 * ((24 * 20 + 20) + 2 * (24 * 5 + 5) + (20 * 24 + 24) - 4 * width),
        "T5, batch, grouped": -7 * 24
        + 4 * 6
        + (2 * 3 + 1) * 2 * 24
        - 3 * 2 * (width - 24 * 12 - 12),
        "Shaw, batch, pre-norm": -7 * 24 + 3 * 2 * 5 * 6 + (2 * 3 + 1) * 2 * 24 + 4 * 24,
    }.items():
        model = made(CHOICES[name])
        assert model.count_params() - plain == difference, name
        table = bert.parameter_table(model)
        assert sum(table.values()) == 2 * table["all"] == 2 * model.count_params()
    assert (
        bert.parameter_table(made(CHOICES["T5, batch, grouped"]))["positions inside attention"]
        == 4 * 6
    )
    albert = made(CHOICES["Shaw, batch, pre-norm"], config=ALBERT)
    assert sum("/positions/" in name for name in numbers(albert)) == 2 * 2  # two groups


@pytest.mark.parametrize("name", ["T5, batch, grouped", "rotary, pre-norm, Macaron"])
def test_no_generated_token_sees_what_follows(name):
    model = made(CHOICES[name], bert.UniLM)
    types = np.array([[0, 0, 0, 1, 1, 1, 1]])
    ids = np.array([[2, 7, 8, 9, 10, 11, 12]])
    other = np.where(np.arange(7) == 5, 4, ids)
    one, another = (model({"input_ids": x, "token_type_ids": types}) for x in (ids, other))
    np.testing.assert_array_equal(one[:, :5], another[:, :5])
    assert np.abs(one[:, 5:] - another[:, 5:]).max() > 0.01


def test_a_blocked_token_changes_nothing():
    for choice in CHOICES.values():
        model = made(choice)
        changed = np.where(PADDING == 1, INPUTS["input_ids"], (INPUTS["input_ids"] + 1) % 13)
        one, other = (
            model({**INPUTS, "input_ids": ids})["sequence_output"].numpy()[PADDING == 1]
            for ids in (INPUTS["input_ids"], changed)
        )
        np.testing.assert_array_equal(one, other)


@few_choices
def test_the_encoder_alone_takes_a_mask(choice):
    model = made(choice)
    x = model.embeddings(INPUTS["input_ids"], INPUTS["token_type_ids"])
    layout = padded_layout(3, 7)
    expected, _ = model.encoder.forward(layout.to_rows(x), layout, tf.constant(BY_QUERY == 1))
    actual = model.encoder(x, BY_QUERY)
    close(actual, [layout.to_batch(rows) for rows in expected[1:]], 1e-6)


def test_tokens_by_masks():
    assert tokens_in(None) is None
    mask = np.zeros((2, 3, 5, 5), bool)
    mask[0, 2, 4, 1] = mask[1, 0, 0, 3] = True
    expected = [[False, True, False, False, False], [False, False, False, True, False]]
    assert tokens_in(tf.constant(mask)).numpy().tolist() == expected
    assert tokens_in(tf.constant(mask.any(1))).numpy().tolist() == expected
    assert tokens_in(tf.constant(mask.any((1, 2)))).numpy().tolist() == expected


def test_lengths_beyond_those_of_the_config():
    long = {"input_ids": np.ones((1, 10), int)}
    for name, choice in CHOICES.items():
        model = made(choice)
        if "learned" in name:
            with pytest.raises(ValueError, match="9 positions were learned.* Got length 10"):
                model(long)
        else:
            assert np.isfinite(model(long)["sequence_output"]).all()


def test_ids_out_of_range():
    model = made(CHOICES["T5, batch, grouped"])
    bad = {"input_ids": np.array([[1, 13, 2]])}
    with pytest.raises(ValueError, match=r"ids in \[0, 13\).*Got 13"):
        model(bad)
    compiled = tf.function(lambda inputs: model(inputs), jit_compile=True)
    assert np.isnan(compiled(bad)["sequence_output"]).all()


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="architecture: expected None or an Architecture, got {}"):
        bert.Bert(CONFIG, architecture={})
    with pytest.raises(ValueError, match="at least 7 positions, .* got 6 of LearnedPositions"):
        bert.Bert(CONFIG, architecture=Architecture(LearnedPositions(6)))
    with pytest.raises(ValueError, match="num_key_value_heads: expected a divisor of num_heads=4"):
        bert.Bert(CONFIG, architecture=Architecture(num_key_value_heads=3))
    with pytest.raises(ValueError, match="RotaryPositions: expected an even head width"):
        made(Architecture(RotaryPositions(), key_dim=3))(INPUTS)
    layer = BertArchitectureLayer(CONFIG, architecture=Architecture(T5Positions(6, 5)))
    layer.build((None, 24))
    with pytest.raises(ValueError, match="bias: expected None, since T5Positions adds its own"):
        layer.forward(tf.ones((21, 24)), padded_layout(3, 7), bias=additive_mask(PADDING))


def test_wrong_folders(tmp_path):
    made(CHOICES["paper"]).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="architecture: expected none for Bert.from_pretrained"):
        bert.Bert.from_pretrained(tmp_path / "model", architecture=Architecture())
    path = tmp_path / "model" / "config.json"
    content = json.loads(path.read_text())
    for wrong, message in (
        ("rotary", "architecture: expected a dict in .*config.json, got 'rotary'"),
        ({"norm": {"part": "Norm"}}, "norm: expected a part among"),
        ({"positions": {"part": "LearnedPositions", "max_position": 9}}, "nothing was loaded"),
        (None, "nothing was loaded"),
    ):
        path.write_text(json.dumps({**content, "architecture": wrong}))
        with pytest.raises(ValueError, match=message):
            bert.Bert.from_pretrained(tmp_path / "model")
