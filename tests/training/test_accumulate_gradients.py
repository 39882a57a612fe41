"""Gradients accumulated over parts of a batch equal the gradients of the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from noisy_halves import NoisyHalves
from tiny_bert import CONFIG

from tf_transformer import Transformer, bert
from tf_transformer.training import (
    FusedAdam,
    MaskedAccuracy,
    RDrop,
    SmoothedCrossentropy,
    accumulate_gradients,
)

pytestmark = pytest.mark.one_of(10, "models")

ROWS, LENGTH = 7, 5  # 7 rows do not divide into equal parts


def translator():
    """Pairs whose parts have other numbers of tokens."""
    model = Transformer(1, 8, 2, 16, 20, 20, pe_input=16, pe_target=16, rate=0.0)
    model.build()
    rng = np.random.default_rng(1)
    ids = rng.integers(3, 20, (ROWS, LENGTH))
    target = np.where(np.arange(LENGTH) < np.array([5, 1, 4, 1, 2, 5, 1])[:, None], ids[::-1], 0)
    return model, (ids, target), target, SmoothedCrossentropy(0.1)


def with_r_drop():
    """Classes, including 0."""
    inner = NoisyHalves()
    inner.build()
    model = RDrop(inner, 5.0)
    model.build()
    x = np.random.default_rng(2).normal(size=(ROWS, 3)).astype(np.float32)
    return model, x, np.array([0, 1, 2, 3, 0, 0, 2]), SmoothedCrossentropy(0.0)


def pretraining():
    """Two outputs, with other numbers of labels."""
    model = bert.BertForPreTraining(with_dropout_off())
    model.build()
    rng = np.random.default_rng(3)
    ids = rng.integers(5, CONFIG.vocab_size, (ROWS, LENGTH))
    inputs = {"input_ids": ids, "masked_lm_positions": np.tile([1, 3], (ROWS, 1))}
    words = np.array([[6, 7], [0, 0], [8, 0], [9, 6], [0, 0], [7, 0], [6, 6]])
    labels = {"prediction_logits": words, "seq_relationship_logits": ids[:, 0] % 2}
    return model, inputs, labels, dict.fromkeys(labels, SmoothedCrossentropy(0.0))


def with_exits():
    model = bert.BertWithExits(with_dropout_off(labels=("a", "b", "c")))
    model.build()
    ids = np.random.default_rng(4).integers(5, CONFIG.vocab_size, (ROWS, LENGTH))
    return model, {"input_ids": ids}, ids[:, 0] % 3, SmoothedCrossentropy(0.0)


def tokens_with_a_class_0():
    """Named entities, with Hugging Face's -100; parts have other numbers of them."""
    model = bert.BertForTokenClassification(with_dropout_off(labels=("O", "PER", "LOC")))
    model.build()
    rng = np.random.default_rng(5)
    ids = rng.integers(5, CONFIG.vocab_size, (ROWS, LENGTH))
    counts = np.array([5, 1, 4, 1, 2, 5, 1])[:, None]
    labels = np.where(np.arange(LENGTH) < counts, ids % 3, -100)
    return model, {"input_ids": ids}, labels, SmoothedCrossentropy(0.0)


def classes_in_a_column():
    model, x, y, _ = with_r_drop()
    return model, x, y[:, None], SmoothedCrossentropy(0.0, ignore_class=None)


def ragged_ids():
    """Texts of other lengths, whose attention mask comes from the lengths."""
    model, inputs, labels, loss = with_exits()
    lengths = np.array([5, 1, 4, 1, 2, 5, 3])
    return (
        model,
        {"input_ids": tf.RaggedTensor.from_tensor(inputs["input_ids"], lengths)},
        labels,
        loss,
    )


def with_dropout_off(**changes):
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return bert.BertConfig(**{**vars(CONFIG), **off, **changes})


def trained(make, parts, calls=1):
    """Losses, accuracies and weights of three steps."""
    keras.utils.set_random_seed(1)
    model, x, y, loss = make()
    metrics = {name: [MaskedAccuracy()] for name in loss} if isinstance(loss, dict) else None
    optimizer = FusedAdam(1e-2, epsilon=1e-3, global_clipnorm=0.5, use_ema=True)
    model.compile(optimizer, loss, metrics=metrics or [MaskedAccuracy()], jit_compile=False)
    for _ in range(calls):
        accumulate_gradients(model, parts)
    data = tf.data.Dataset.from_tensors((x, y)).repeat()
    history = model.fit(data, steps_per_epoch=1, epochs=3, verbose=0, shuffle=False).history
    return history, model.get_weights(), int(optimizer.iterations)


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "make",
    [
        translator,
        with_r_drop,
        pretraining,
        with_exits,
        tokens_with_a_class_0,
        classes_in_a_column,
        ragged_ids,
    ],
)
def test_they_are_those_of_the_whole_batch(make):
    expected, weights, _ = trained(make, 1)
    found, found_weights, steps = trained(make, 3)
    assert steps == 3 and expected["loss"][-1] < expected["loss"][0]
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)
    for one, other in zip(found_weights, weights, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


def test_a_second_call_replaces_the_first():
    """A model that is compiled and trained again keeps its `train_step`."""
    found, weights, steps = trained(classes_in_a_column, 3, calls=2)
    expected, expected_weights, _ = trained(classes_in_a_column, 3)
    assert steps == 3 and found == expected
    for one, other in zip(weights, expected_weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_more_parts_than_rows():
    np.testing.assert_allclose(
        trained(translator, ROWS + 2)[0]["loss"], trained(translator, 1)[0]["loss"], rtol=1e-5
    )


def test_bad_input():
    model, x, y, loss = with_r_drop()
    model.compile(FusedAdam(), loss, jit_compile=False)
    with pytest.raises(ValueError, match="accumulate: expected at least 1 part of a batch, got 0"):
        accumulate_gradients(model, 0)
    accumulate_gradients(model, 2)
    with pytest.raises(ValueError, match="accumulate: expected batches without sample weights"):
        model.train_on_batch(x, y, sample_weight=np.ones(ROWS))
    with pytest.raises(ValueError, match="y_true: expected a dense tensor, got a ragged one"):
        model.train_step((tf.constant(x), tf.ragged.constant([[n] for n in y])))
    with pytest.raises(ValueError, match="accumulate: expected labels \\(B,\\) or an ignore_class"):
        model.train_on_batch(x, y[:, None])
