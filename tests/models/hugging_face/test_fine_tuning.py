"""Published models are fine-tuned with their padding and start token, and saved again."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from tf_transformer import SmoothedCrossentropy, load, save_pretrained
from tf_transformer.data import BucketedBatches, LanguageModelBatches

pytestmark = pytest.mark.one_of(10, "runs")

FOLDER = Path(__file__).parents[2] / "vectors" / "published"
SOURCES, TARGETS = [[7, 11, 5], [9], [6, 8]], [[12, 9], [6, 7, 13, 5], [8]]
SIZES = {"lengths": (4, 6), "tokens_per_batch": 12}
# The tokens at the start and the end, and the rest of the vocabulary's, of which none is padding.
PAIRS = {"marian": (28, 0), **dict.fromkeys(("bart", "mbart", "m2m_100"), (2, 2))}
PAIRS |= dict.fromkeys(("t5", "t5-gated", "mt5"), (0, 1))


def mean_loss(model, pairs, start, end):
    """The mean of -log p of all target tokens and ends, pair by pair, without padding."""
    losses = []
    for source, target in pairs:
        logits = model((np.array([[*source, end]]), np.array([[start, *target]])))
        log_p = tf.nn.log_softmax(tf.cast(logits, tf.float64))[0].numpy()
        losses += [-log_p[n, token] for n, token in enumerate([*target, end])]
    return np.mean(losses)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", PAIRS)
def test_a_loss_of_batches_is_that_of_the_pairs_alone(name):
    model, (start, end) = load(FOLDER / name, rate=0.0), PAIRS[name]
    batches = BucketedBatches(
        SOURCES, TARGETS, start_id=start, end_id=end, pad_id=model.pad_id, **SIZES
    )
    model.compile(loss=SmoothedCrossentropy(0.0), run_eagerly=True)
    expected = mean_loss(model, zip(SOURCES, TARGETS, strict=True), start, end)
    totals, counts = [], []
    for inputs, labels in batches.epoch(0):
        counts.append(np.sum(labels != model.pad_id))
        totals.append(
            counts[-1] * model.evaluate(inputs, labels, verbose=0, return_dict=True)["loss"]
        )
    assert sum(counts) == 10
    np.testing.assert_allclose(sum(totals) / 10, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "pad_id"),
    [("gpt2", None), ("gpt2-untied", 5), ("llama", None), ("mistral", None), ("qwen2", None)],
)
def test_a_loss_of_documents_is_that_of_each_alone(name, pad_id):
    model = load(FOLDER / name, rate=0.0)
    assert model.pad_id == pad_id
    documents = [[7, 0, 6], [9], [8, 8, 0, 2]]
    batches = LanguageModelBatches(
        documents, start_id=3, end_id=3, pad_id=model.pad_id, lengths=(5,), tokens_per_batch=20
    )
    expected = []
    for document in documents:
        log_p = tf.nn.log_softmax(model(np.array([[3, *document]])))[0].numpy()
        expected += [-log_p[n, token] for n, token in enumerate([*document, 3])]
    model.compile(loss=SmoothedCrossentropy(0.0), run_eagerly=True)
    [(ids, labels)] = batches.epoch(0)
    assert len(ids) == 4  # one only fills up the batch
    found = model.evaluate(ids, labels, verbose=0)
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-5)


@pytest.mark.slow
def test_mixed_precision_keeps_weights_in_float32(tmp_path):
    model = load(FOLDER / "marian", dtype="mixed_bfloat16")
    before = [weight.numpy() for weight in model.weights]
    batches = BucketedBatches(SOURCES, TARGETS, start_id=28, end_id=0, pad_id=28, **SIZES)
    model.compile(keras.optimizers.Adam(1e-5), SmoothedCrossentropy(0.1))
    model.fit(batches.dataset(epochs=2), shuffle=False, verbose=0)
    save_pretrained(model, tmp_path / "model", tokenizer_from=FOLDER / "marian")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert {array.dtype.name for array in tensors.values()} == {"float32"}
    again = load(tmp_path / "model")
    assert all(np.array_equal(*pair) for pair in zip(again.weights, model.weights, strict=True))
    # Steps of 1e-5 are lost in weights of 16 bits.
    changes = [np.max(np.abs(w - b)) for w, b in zip(again.weights, before, strict=True)]
    assert 0 < max(changes) < 1e-4 and np.mean(np.array(changes) > 0) > 0.9
    inputs = np.array([[7, 11, 5, 0]]), np.array([[28, 12, 9]])
    np.testing.assert_allclose(again(inputs), tf.cast(model(inputs), "float32"), atol=0.1)
