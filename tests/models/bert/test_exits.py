"""A classifier after every layer: what it says, when texts leave, what is computed."""

import dataclasses
import importlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from bert_choices import ALBERT, CHOICES, CONFIG, INPUTS
from loading import close
from random_weights import randomize

from tf_transformer import bert
from tf_transformer.bert import BertForSequenceClassification, BertWithExits
from tf_transformer.data import LabelledTexts
from tf_transformer.training import FineTuning, fine_tune

pytestmark = pytest.mark.one_of(10, "published")

exits = importlib.import_module("tf_transformer.models.bert.exits")
LABELS = ("a", "b", "c")
DEEP = dataclasses.replace(CONFIG, num_hidden_layers=5, labels=LABELS)


def made(config=DEEP, **options):
    model = BertWithExits(config, **options)
    model.build()
    return randomize(model, 4)


def texts(rows=23):
    rng = np.random.default_rng(6)
    mask = np.arange(7) < rng.integers(1, 8, (rows, 1))
    return {"input_ids": rng.integers(1, 13, (rows, 7)), "attention_mask": mask.astype(np.int32)}


def left(logits, patience=None, entropy=0.0):
    """When each text leaves and with which logits, text by text, as the papers say."""
    answers, layers = [], []
    for exits in np.asarray(logits, np.float64):
        streak = 0
        for n, one in enumerate(exits):
            streak = streak + 1 if n and one.argmax() == exits[n - 1].argmax() else 0
            p = np.exp(one - one.max()) / np.exp(one - one.max()).sum()
            if streak == patience or -(p * np.log(p)).sum() < entropy or n == len(exits) - 1:
                break
        answers.append(one)
        layers.append(n + 1)
    return np.array(answers), np.array(layers)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_each_exit_reads_the_tokens_of_its_layer(pooling):
    model = made(pooling=pooling)
    states = model.bert(INPUTS, return_hidden_states=True)["hidden_states"][1:]
    [kernel, bias], logits = model.bert.pooler_dense.get_weights(), model(INPUTS)
    shares = INPUTS["attention_mask"] / INPUTS["attention_mask"].sum(1, keepdims=True)
    if pooling == "cls":
        shares = np.eye(1, 7).repeat(3, 0)
    for n, state in enumerate(states):
        first = np.einsum("bt,btd->bd", shares, np.asarray(state, np.float64))
        pooled = np.tanh(first @ kernel + bias)
        weights = model.classifiers[n].get_weights()
        close(logits[:, n], pooled @ weights[0] + weights[1])


RULES = [{"patience": 1}, {"patience": 2}, {"entropy": 0.4}, {"patience": 2, "entropy": 0.1}, {}]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("options", [{}, {"unpad": True, "pooling": "mean"}], ids=str)
def test_texts_leave_by_the_rule(rule, options):
    model, inputs = made(**options), texts()
    answers, layers = left(model(inputs), **rule)
    assert len(set(layers)) > 1 or not rule
    for function in (model.exit_early, tf.function(model.exit_early, autograph=False)):
        found = function(inputs, **rule)
        np.testing.assert_array_equal(found["layers"], layers)
        close(found["logits"], answers)


def test_another_class_starts_the_count_again():
    model = made()
    for n, classifier in enumerate(model.classifiers):
        kernel, bias = classifier.get_weights()
        classifier.set_weights([0 * kernel, np.eye(len(bias))[int(n >= 2)]])  # 0, 0, 1, 1, 1
    assert set(model.exit_early(INPUTS, patience=1)["layers"].numpy()) == {2}
    assert set(model.exit_early(INPUTS, patience=2)["layers"].numpy()) == {5}


@pytest.mark.parametrize("name", ["ALBERT", "rotary, pre-norm, Macaron", "T5, batch, grouped"])
def test_other_parts(name):
    options = {"architecture": CHOICES[name]} if name in CHOICES else {}
    config = dataclasses.replace(ALBERT, labels=LABELS) if not options else DEEP
    model, inputs = made(config, **options), texts()
    answers, layers = left(model(inputs), 1, 0.01)
    assert len(set(layers)) > 1
    found = model.exit_early(inputs, 1, 0.01)
    np.testing.assert_array_equal(found["layers"], layers)
    close(found["logits"], answers)


@pytest.mark.slow
def test_by_xla_with_thresholds_as_inputs():
    model, inputs = made(unpad=True), texts(3)
    compiled = tf.function(model.exit_early, jit_compile=True, autograph=False)
    for patience, entropy in ((1, 0.0), (2, 0.1), (9, 0.0)):
        found = compiled(inputs, tf.constant(patience), tf.constant(entropy))
        answers, layers = left(model(inputs), patience, entropy)
        np.testing.assert_array_equal(found["layers"], layers)
        close(found["logits"], answers)
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("unpad", [False, True])
def test_layers_compute_only_who_is_left(unpad, monkeypatch):
    model, inputs = made(unpad=unpad), texts()
    rows = tf.Variable(np.zeros(5, np.int32))
    original = model.bert.encoder.forward_layer

    def counted(n, x, *arguments):
        rows.scatter_nd_add([[n]], [tf.shape(x)[0]])
        return original(n, x, *arguments)

    monkeypatch.setattr(model.bert.encoder, "forward_layer", counted)
    early = tf.function(model.exit_early, autograph=False)
    layers = early(inputs, patience=1)["layers"].numpy()
    lengths = inputs["attention_mask"].sum(1) if unpad else np.full(len(layers), 7)
    expected = [lengths[layers > n].sum() for n in range(5)]
    assert rows.numpy().tolist() == expected
    rows.assign(tf.zeros_like(rows))
    early(inputs, entropy=5.0)
    assert rows.numpy().tolist() == [lengths.sum(), 0, 0, 0, 0]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_rows_of_padding_hold_nobody_up(pooling, monkeypatch):
    """A bucket for XLA has rows without a token."""
    model, inputs = made(pooling=pooling), texts(4)
    inputs["attention_mask"][3] = 0
    rows = tf.Variable(0)
    monkeypatch.setattr(exits, "in_xla_program", lambda: True)
    original = model.bert.encoder.forward_layer

    def counted(*arguments):
        rows.assign_add(1)
        return original(*arguments)

    monkeypatch.setattr(model.bert.encoder, "forward_layer", counted)
    answers, layers = left(model(inputs)[:3], 1)
    rows.assign(0)
    found = model.exit_early(inputs, 1)
    np.testing.assert_array_equal(found["layers"][:3], layers)
    close(found["logits"][:3], answers)
    assert int(rows) == max(layers)


def test_an_empty_batch_and_no_mask():
    model = made()
    empty = {"input_ids": np.zeros((0, 7), np.int32)}
    assert model.exit_early(empty)["logits"].shape == (0, 3)
    ids = {"input_ids": texts()["input_ids"]}
    np.testing.assert_array_equal(model.exit_early(ids, 1)["layers"], left(model(ids), 1)[1])


def test_the_loss_is_the_mean_weighted_by_depth():
    model, labels = made(), np.array([2, 0, 1])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )
    logits = np.asarray(model(INPUTS), np.float64)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    losses = -np.log(p[np.arange(3), :, labels]).mean(0)
    loss, accuracy = model.evaluate(INPUTS, labels, verbose=0)
    assert loss == pytest.approx(losses @ [1, 2, 3, 4, 5] / 15, rel=1e-5)
    assert accuracy == pytest.approx((logits[:, -1].argmax(-1) == labels).mean())


@pytest.mark.parametrize("sample_weight", [None, np.array([0.5, 2.0, 0.0], np.float32)])
def test_in_training_lower_exits_learn_from_the_last(sample_weight):
    model, labels = made(), np.array([2, 0, 1])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with tf.GradientTape() as tape:
        found = model(INPUTS)
        tape.watch(found)
        loss = model.compute_loss(INPUTS, labels, found, sample_weight)

    def softmax(logits):
        return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)

    logits = np.asarray(found, np.float64)
    p, soft = softmax(logits), softmax(logits / 2)  # (B, L, C)
    weights = np.ones(3) if sample_weight is None else sample_weight
    of_labels = weights @ -np.log(p[np.arange(3), :, labels]) / 3  # (L,)
    of_last = weights @ (4 * soft[:, -1:] * np.log(soft[:, -1:] / soft)).sum(-1) / 3
    losses = (of_labels + of_last) / 2
    losses[-1] = of_labels[-1]
    assert float(loss) == pytest.approx(losses @ [1, 2, 3, 4, 5] / 15, rel=1e-5)
    # The last exit learns from the labels alone.
    expected = 5 / 15 * weights[:, None] / 3 * (p[:, -1] - np.eye(3)[labels])
    np.testing.assert_allclose(tape.gradient(loss, found)[:, -1], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_fine_tuning_trains_every_exit(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    rows = [("good good", 1), ("bad", 0), ("good", 1), ("bad bad", 0)] * 8
    data = LabelledTexts(("no", "yes"), rows, rows[:4], ())
    keras.utils.set_random_seed(1)
    model = BertWithExits(bert.BertConfig(7, 8, 3, 2, 9, labels=data.labels, hidden_dropout_prob=0))
    settings = FineTuning(epochs=12, batch_size=8, learning_rate=2e-2)
    tokenizer = bert.read_tokenizer(tmp_path)
    history = fine_tune(model, tokenizer, data, settings, verbose=0).history
    assert history["val_accuracy"][-1] == 1
    inputs = bert.text_inputs(tokenizer, ["good", "bad"])
    assert np.argmax(model(inputs), -1).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert model.exit_early(inputs, 1)["layers"].numpy().tolist() == [2, 2]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("config", [DEEP, dataclasses.replace(ALBERT, labels=LABELS)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_saved_and_loaded(config, pooling, tmp_path):
    model = made(config, pooling=pooling)
    model.save_pretrained(tmp_path / "folder")
    model.save(tmp_path / "model.keras")
    for again in (
        BertWithExits.from_pretrained(tmp_path / "folder"),
        keras.models.load_model(tmp_path / "model.keras"),
    ):
        np.testing.assert_array_equal(again(INPUTS), model(INPUTS))
    # The body serves other heads, and takes exits from no checkpoint.
    plain = BertForSequenceClassification.from_pretrained(tmp_path / "folder", new_head=True)
    np.testing.assert_array_equal(
        plain.bert(INPUTS)["pooled_output"], model.bert(INPUTS)["pooled_output"]
    )
    plain.save_pretrained(tmp_path / "plain")
    with pytest.raises(ValueError, match="classifiers.0.weight"):
        BertWithExits.from_pretrained(tmp_path / "plain")
    new = BertWithExits.from_pretrained(tmp_path / "plain", new_head=True)
    assert new(INPUTS).shape == (3, config.num_hidden_layers, 3)


def test_bad_input():
    model = made()
    with pytest.raises(ValueError, match="patience: expected a whole number of at least 1, got 0"):
        model.exit_early(INPUTS, patience=0)
    with pytest.raises(
        ValueError, match="patience: expected a whole number of at least 1, got 1.5"
    ):
        model.exit_early(INPUTS, patience=1.5)
    with pytest.raises(ValueError, match="entropy: expected a number of at least 0, got -0.1"):
        model.exit_early(INPUTS, entropy=-0.1)
    by_query = {**INPUTS, "attention_mask": np.ones((3, 7, 7), np.int32)}
    with pytest.raises(ValueError, match=r"attention_mask: expected \(batch, length\)"):
        model.exit_early(by_query)
    with pytest.raises(ValueError, match='pooling: expected "cls" or "mean", got .max'):
        BertWithExits(DEEP, pooling="max")
    with pytest.raises(ValueError, match="num_hidden_layers: expected at least 2"):
        BertWithExits(dataclasses.replace(DEEP, num_hidden_layers=1))
    with pytest.raises(ValueError, match="labels: expected"):
        BertWithExits(dataclasses.replace(CONFIG, labels=()))
    for changes in (
        {"problem_type": "multi_label_classification"},
        {"problem_type": "regression"},
        {"labels": ("a",)},
    ):
        with pytest.raises(ValueError, match="problem_type: expected single_label_classification"):
            BertWithExits(dataclasses.replace(DEEP, **changes))
