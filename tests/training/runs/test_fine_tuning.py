"""Fine-tuning learns, is reproducible, and rejects invalid input."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tiny_bert import TOKENS, tiny_folder

from tf_transformer import bert
from tf_transformer.data import LabelledTexts
from tf_transformer.training import FineTuning, fine_tune, text_batches
from tf_transformer.training.runs import fine_tuning

pytestmark = pytest.mark.one_of(10, "runs")

LABELS = ("bad", "good")
SETTINGS = FineTuning(epochs=12, batch_size=7, learning_rate=5e-3, max_length=9)


def texts(count, seed):
    """Random words labelled by whether they contain "good" or "bad"."""
    rng = np.random.default_rng(seed)
    words = [word for word in TOKENS[5:] if word not in LABELS and not word.startswith("##")]
    rows = []
    for n in range(count):
        row = [*rng.choice(words, rng.integers(1, 5)), LABELS[n % 2]]
        rows.append((" ".join(rng.permutation(row)), n % 2))
    return rows


DATA = LabelledTexts(LABELS, texts(60, 1), texts(20, 2), texts(20, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model") / "bert")


def new_model(folder, **changes):
    tf.keras.utils.set_random_seed(1)
    return bert.BertForSequenceClassification.from_pretrained(
        folder,
        new_head=True,
        # With dropout, such a small model would need longer training.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **{"labels": LABELS, **changes},
    )


@pytest.mark.slow
def test_learns(folder):
    tokenizer, model = bert.read_tokenizer(folder), new_model(folder, unpad=True)
    history = fine_tune(model, tokenizer, DATA, SETTINGS, verbose=0).history
    assert history["val_accuracy"][-1] == 1.0
    _, accuracy = model.evaluate(text_batches(tokenizer, DATA.test, SETTINGS), verbose=0)
    assert accuracy == 1.0


@pytest.mark.slow
def test_repeats_itself(folder):
    tokenizer, weights = bert.read_tokenizer(folder), []
    settings = dataclasses.replace(SETTINGS, epochs=2)  # the second in a different order
    for _ in range(2):
        model = new_model(folder, unpad=True)
        fine_tune(model, tokenizer, DATA, settings, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_batches_are_cut_padded_and_shuffled(folder):
    tokenizer = bert.read_tokenizer(folder)
    settings = FineTuning(batch_size=8, max_length=4)
    rows = [(" ".join(["film"] * n), n % 2) for n in range(20)]
    batches = list(text_batches(tokenizer, rows, settings))
    assert [len(labels) for _, labels in batches] == [8, 8, 4]
    assert batches[0][0]["attention_mask"].numpy().sum(1).tolist() == [2, 3, 4, 4, 4, 4, 4, 4]
    orders = []
    for _ in range(2):
        shuffled = text_batches(tokenizer, rows, settings, shuffle=True)
        orders.append([[labels.numpy().tolist() for _, labels in shuffled] for _ in range(2)])
    assert orders[0] == orders[1]  # the seed decides
    assert orders[0][0] != orders[0][1]  # a different order in every pass
    assert sorted(x for batch in orders[0][0] for x in batch) == [0] * 10 + [1] * 10


@pytest.mark.slow
def test_batches_are_the_inputs_of_their_texts(folder, monkeypatch):
    monkeypatch.setattr(fine_tuning, "AT_ONCE", 3)
    tokenizer, rows = bert.read_tokenizer(folder), texts(11, 4)
    batches = text_batches(tokenizer, rows, FineTuning(batch_size=5, max_length=5))
    for first, (inputs, labels) in zip((0, 5, 10), batches, strict=True):
        some, numbers = zip(*rows[first : first + 5], strict=True)
        assert tuple(labels.numpy()) == numbers
        for name, expected in bert.text_inputs(tokenizer, some, None, 5).items():
            np.testing.assert_array_equal(inputs[name], expected)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"labels": ("good", "bad")}, "labels: expected those of the data, .'bad', 'good'."),
        ({"train": []}, "data: expected texts to train on"),
        (
            {"problem_type": "multi_label_classification"},
            "problem_type: expected single_label_.* got 'multi_label_classification'. Pass proble",
        ),
        ({"problem_type": "regression"}, "problem_type: expected single_label_.* got 'regression'"),
    ],
)
def test_refuses(folder, changes, message):
    data = dataclasses.replace(DATA, **{k: v for k, v in changes.items() if k == "train"})
    model = new_model(folder, **{k: v for k, v in changes.items() if k != "train"})
    with pytest.raises(ValueError, match=message):
        fine_tune(model, bert.read_tokenizer(folder), data, SETTINGS)


def test_refuses_another_vocabulary(folder, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*TOKENS, "more"]))
    with pytest.raises(ValueError, match=f"tokenizer: expected at most {len(TOKENS)} tokens"):
        fine_tune(new_model(folder), bert.read_tokenizer(tmp_path), DATA, SETTINGS)


@pytest.mark.parametrize(
    "name, value",
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("max_length", 2),
        ("learning_rate", 0),
        ("warmup_share", 1.1),
        ("layer_decay", 5),
        ("weight_decay", -1),
    ],
)
def test_refuses_settings(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected .*, got {value}"):
        FineTuning(**{name: value})


def test_refuses_more_positions_than_there_are(folder):
    settings = dataclasses.replace(SETTINGS, max_length=12)
    with pytest.raises(ValueError, match="max_length: expected at most 11, .* got 12"):
        fine_tune(new_model(folder), bert.read_tokenizer(folder), DATA, settings)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_a_training_of_one_step_without_validation(folder, share):
    data = dataclasses.replace(DATA, train=DATA.train[:3], validation=[])
    settings = dataclasses.replace(SETTINGS, epochs=1, warmup_share=share)
    model = new_model(folder)
    before = model.get_weights()[0]
    history = fine_tune(model, bert.read_tokenizer(folder), data, settings, verbose=0).history
    assert set(history) == {"accuracy", "loss"}
    assert not np.array_equal(model.get_weights()[0], before)
