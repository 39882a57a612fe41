"""A SavedModel that stops early: thresholds as inputs, where there is only TensorFlow."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from serving_contract import check_serving_contract
from tiny_bert import CONFIG, randomised, tiny_folder

from tf_transformer import EarlyExitClassifier, bert, count_compilations
from tf_transformer.export.saving import load_saved_model

pytestmark = pytest.mark.one_of(10, "served")

TEXTS = ["a good film", "", "The PLOT was unknown.", "电影 好 " * 20, "bad", "a bad plot", "was"]
LABELS = ("坏", "good", "so-so")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return bert.read_tokenizer(tiny_folder(tmp_path_factory.mktemp("model") / "bert"))


def model(**options):
    config = dataclasses.replace(CONFIG, labels=LABELS, num_hidden_layers=4)
    return randomised(bert.BertWithExits(config, **options), seed=8)


def entropies(made, inputs):
    p = tf.nn.softmax(made(inputs)).numpy()
    return -(p * np.log(p)).sum(-1)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("options", [{}, {"unpad": True}, {"jit_compile": True}], ids=str)
def test_answers_like_the_model(options, tokenizer, tmp_path):
    jit = {"jit_compile": options.pop("jit_compile", False)}
    made = model(**options)
    inputs = bert.text_inputs(tokenizer, TEXTS, None, 11)
    middle = float(np.sort(entropies(made, inputs)[:, 0])[2:4].mean())
    classifier = EarlyExitClassifier(made, tokenizer, **jit, patience=2, entropy=middle)
    classifier.save(tmp_path / "model")
    loaded = load_saved_model(tmp_path / "model")
    early = loaded.signatures["early"]
    seen = set()
    for patience, entropy in ((2, middle), (1, 0.0), (2, 0.0), (4, 0.0)):
        expected = made.exit_early(inputs, patience, entropy)
        found = early(
            text=tf.constant(TEXTS), patience=tf.constant(patience), entropy=tf.constant(entropy)
        )
        assert found["layers"].numpy().tolist() == expected["layers"].numpy().tolist()
        np.testing.assert_allclose(
            found["probabilities"], tf.nn.softmax(expected["logits"]), rtol=1e-5, atol=1e-6
        )
        seen |= set(found["layers"].numpy())
        names = np.array(LABELS)[np.argmax(expected["logits"], 1)]
        assert [label.decode() for label in found["label"].numpy()] == names.tolist()
    assert {1, 2, 4} <= seen
    default = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    expected = made.exit_early(inputs, 2, middle)["layers"]
    np.testing.assert_array_equal(default["layers"], expected)
    outputs = ["label", "layers", "probabilities"]
    assert check_serving_contract(tmp_path / "model") == dict.fromkeys(
        ("serving_default", "early"), outputs
    )


@pytest.mark.slow
def test_a_warm_model_serves_any_threshold_from_its_program(tokenizer):
    classifier = EarlyExitClassifier(model(unpad=True), tokenizer)
    plain = [classifier.classify_early(TEXTS[:2], 1, e) for e in (0.0, 0.3)]
    classifier.classify(TEXTS[:2])
    with count_compilations() as built:
        assert int(classifier.warm_up(2, 8)) == 1
    assert built.xla == 1
    with count_compilations() as built:
        warm = [classifier.classify_early(TEXTS[:2], 1, e) for e in (0.0, 0.3)]
        assert classifier.classify(TEXTS[:2])["layers"].numpy().tolist() == [4, 4]
    assert built.xla == built.traces == 0
    for one, other in zip(warm, plain, strict=True):
        np.testing.assert_array_equal(one["layers"], other["layers"])
        np.testing.assert_allclose(one["probabilities"], other["probabilities"], atol=1e-5)


@pytest.mark.slow
def test_loads_where_there_is_only_tensorflow(tokenizer, tmp_path):
    classifier = EarlyExitClassifier(model(), tokenizer)
    classifier.save(tmp_path / "model")
    script = (
        "import json, sys, tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "texts = tf.constant(json.load(sys.stdin))\n"
        "found = model.classify_early(texts, tf.constant(1), tf.constant(0.0))\n"
        "assert not any(name.startswith('tf_transformer') for name in sys.modules)\n"
        "print(json.dumps(found['layers'].numpy().tolist()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model")],
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    expected = classifier.classify_early(TEXTS, 1, 0.0)["layers"].numpy().tolist()
    assert json.loads(done.stdout.splitlines()[-1]) == expected


@pytest.mark.slow
def test_bad_input(tokenizer):
    made = model()
    with pytest.raises(ValueError, match="patience: expected a whole number of at least 1, got 0"):
        EarlyExitClassifier(made, tokenizer, patience=0)
    plain = bert.BertForSequenceClassification(made.config)
    with pytest.raises(ValueError, match="model: expected a BertWithExits, got BertForSeq"):
        EarlyExitClassifier(plain, tokenizer)
    classifier = EarlyExitClassifier(made, tokenizer)
    for patience, entropy in ((0, 0.0), (1, -1.0)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected at least 1 and 0"):
            classifier.classify_early(["bad"], patience, entropy)
