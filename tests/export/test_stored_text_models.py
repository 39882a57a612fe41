"""Text models with 16 bits a weight in their files compute as the model of the rounded weights."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tiny_bert import CONFIG, randomised, tiny_folder

from tf_transformer import EarlyExitClassifier, TextClassifier, TextEncoder, bert
from tf_transformer.export import StoredWeights
from tf_transformer.export.saving import load_saved_model

TEXTS = ["a good film", "", "The PLOT was unknown.", "电影 好 " * 20, "bad"]
# A wide one, so that the weights are most of the file.
LABELED = dataclasses.replace(CONFIG, labels=("坏", "good", "so-so"), intermediate_size=997)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return bert.read_tokenizer(tiny_folder(tmp_path_factory.mktemp("model") / "bert"))


def rounded(model, dtype):
    copy = randomised(type(model)(LABELED, unpad=True))
    for weight, value in zip(copy.weights, model.weights, strict=True):
        weight.assign(tf.cast(tf.cast(value, dtype), tf.float32))
    return copy


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    ("kind", "export", "call", "name", "dtype"),
    [
        (
            bert.BertForSequenceClassification,
            TextClassifier,
            "classify",
            "probabilities",
            "float16",
        ),
        (bert.BertWithExits, EarlyExitClassifier, "classify", "probabilities", "bfloat16"),
        (bert.SentenceEncoder, TextEncoder, "encode", None, "float16"),
    ],
)
def test_results_are_those_of_the_rounded_weights(
    kind, export, call, name, dtype, tokenizer, tmp_path
):
    model = randomised(kind(LABELED, unpad=True))
    options = {"patience": 1} if kind is bert.BertWithExits else {}
    whole = export(rounded(model, dtype), tokenizer, **options)
    rough = export(StoredWeights(model, dtype), tokenizer, **options)
    texts, results = tf.constant(TEXTS), []
    rough.save(tmp_path / "stored")
    loaded = load_saved_model(tmp_path / "stored")
    for weight in model.weights:  # the stored weights are copies
        weight.assign(weight + 1)
    for one in (whole, rough, loaded):
        found = getattr(one, call)(texts)
        results.append((found[name] if name else found).numpy())
    for found in results[1:]:
        np.testing.assert_allclose(found, results[0], rtol=1e-5, atol=1e-6)
    size = sum(file.stat().st_size for file in (tmp_path / "stored" / "variables").iterdir())
    assert size < 3 * model.count_params()  # bytes; float32 has 4
    assert loaded.warm_up(2, 8) == 1
    found = getattr(loaded, call)(texts[:2])
    np.testing.assert_allclose(found[name] if name else found, results[0][:2], rtol=1e-5, atol=1e-6)
