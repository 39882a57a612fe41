"""BERT with the parts of an `Architecture`, against the float64 reference.

Axes: B=3 batch, T=7 length, D=24 width, N=4 heads, F=11 inner width, L=3 layers.
"""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from bert_choices import (
    ALBERT,
    BY_QUERY,
    CHOICES,
    CONFIG,
    INPUTS,
    MASKS,
    PADDING,
    close,
    every_choice,
    few_choices,
    made,
    numbers,
    outputs,
    twin,
)
from reference_bert_architecture import BertReference
from slopes import check_slope

from tf_transformer import (
    Architecture,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    bert,
)
from tf_transformer.models.bert.attention import PaddedLayout, tokens_in

pytestmark = [
    pytest.mark.one_of(10, "parts"),
    pytest.mark.one_of(10),  # of the cases of each test
]


@pytest.mark.one_of(10)
@every_choice
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_outputs_are_those_of_the_reference(choice, mask):
    model, inputs = made(choice, dtype="float64"), {**INPUTS, "attention_mask": mask}
    expected = BertReference(numbers(model), choice.to_dict(), CONFIG).outputs(inputs)
    # TensorFlow 2.21 rounds the constants of GELU to float32.
    close(outputs(model, inputs), expected, 2e-6)


@pytest.mark.one_of(10)
@every_choice
def test_shared_layers_and_narrow_embeddings(choice):
    model = made(choice, config=ALBERT, dtype="float64")
    expected = BertReference(numbers(model), choice.to_dict(), ALBERT).outputs(INPUTS)
    close(outputs(model, INPUTS), expected, 2e-6)


@pytest.mark.one_of(10)
@every_choice
@pytest.mark.parametrize("mask", [PADDING, BY_QUERY], ids=["padding", "by query"])
def test_gradients_are_those_of_the_reference(choice, mask):
    """In training, along a random direction of all weights."""
    model, inputs = made(choice, dtype="float64"), {**INPUTS, "attention_mask": mask}
    trained = {v.path for v in model.trainable_variables}
    variables = {
        name: variable
        for name, variable in model.variables_by_name().items()
        if variable.path in trained and "pooler" not in name
    }

    def reference(weights):
        bert_reference = BertReference(weights, choice.to_dict(), CONFIG, training=True)
        return bert_reference.hidden_states(*inputs.values())[-1]

    check_slope(
        lambda: model(inputs, training=True)["sequence_output"],
        variables,
        numbers(model),
        reference,
        step=1e-6,
    )


@pytest.mark.one_of(10)
@every_choice
def test_unpadded_is_padded(choice):
    """In float64: a pooler over large states multiplies the rounding errors of float32."""
    model = made(choice, dtype="float64")
    other = twin(model, unpad=True)
    keep = PADDING == 1
    one, another = outputs(model, INPUTS), outputs(other, INPUTS)
    close([x[keep] for x in another[:-1]], [x[keep] for x in one[:-1]], 1e-11)
    close(another[-1:], one[-1:], 1e-11)
    assert all((x.numpy()[~keep] == 0).all() for x in another[:-1])
    weights = [m(INPUTS, return_attentions=True)["attentions"][-1] for m in (model, other)]
    one, another = (np.moveaxis(w, 1, 2)[keep] for w in weights)
    np.testing.assert_allclose(another, one, atol=1e-11)


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
    plain = made(None, dtype="float64")
    choice = Architecture(LearnedPositions(7), LayerNorm(1e-12), feed_forward=FeedForward("gelu"))
    model = made(choice, dtype="float64")
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
    close(outputs(model, INPUTS), outputs(plain, INPUTS), 1e-12)


@pytest.mark.slow
@pytest.mark.one_of(10)
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
    layout = PaddedLayout(3, 7)
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
            with pytest.raises(ValueError, match="9 positions, the learned ones, got length 10"):
                model(long)
        else:
            assert np.isfinite(model(long)["sequence_output"]).all()


def test_ids_out_of_range():
    model = made(CHOICES["T5, batch, grouped"])
    bad = {"input_ids": np.array([[1, 13, 2]])}
    with pytest.raises(ValueError, match=r"ids in \[0, 13\).*got 13"):
        model(bad)
    compiled = tf.function(lambda inputs: model(inputs), jit_compile=True)
    assert np.isnan(compiled(bad)["sequence_output"]).all()


def test_a_keras_mask_and_an_attention_mask_of_an_encoder_both_block():
    encoder = made(CHOICES["T5, batch, grouped"]).encoder
    x = np.random.default_rng(3).normal(size=(2, 5, encoder.config.embedding_width))
    x, free = x.astype(np.float32), np.tril(np.ones((2, 5, 5), np.int32))
    padding = np.array([[True, False, True, True, True], [True] * 5])
    found = encoder(x, free, input_tensor_mask=padding)
    expected = encoder(x, free * padding[:, np.newaxis])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy()[padding], other.numpy()[padding], atol=1e-6)
    assert np.abs(found[-1] - encoder(x, free)[-1])[0, 2:].max() > 1e-3
