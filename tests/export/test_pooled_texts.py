"""Texts to classes and vectors by published decoders and T5, from Python to the commands."""

import io
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from command_line import command_here
from loading import VECTORS

from tf_transformer import TextClassifier, TextEncoder, TextGenerator, load
from tf_transformer.errors import ArgumentError
from tf_transformer.export.saving import StoredWeights, load_saved_model
from tf_transformer.models.hugging_face.folders import load_sentence_encoder
from tf_transformer.models.hugging_face.translation_tokenizers import decoder_tokenizer
from tf_transformer.serving import Task

pytestmark = pytest.mark.one_of(10, "texts")

CLASSIFIERS, ENCODERS = VECTORS / "pooled" / "classifiers", VECTORS / "pooled" / "encoders"


def case_of(folder):
    return json.loads((folder / "cases.json").read_text("utf-8"))


def check_answers(found, answers):
    """Compare with what the pipeline of transformers says of each text."""
    [kind] = found.keys() & {"probabilities", "values"}
    names = [row["label"] for row in answers[0]]
    rows = [sorted(row, key=lambda one: names.index(one["label"])) for row in answers]
    assert [label.decode() for label in found["label"].numpy()] == [
        max(row, key=lambda one: one["score"])["label"] for row in answers
    ]
    for scores, row in zip(found[kind].numpy(), rows, strict=True):
        expected = sorted(one["score"] for one in row)
        np.testing.assert_allclose(sorted(scores), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "qwen2"])
def test_classes_are_those_of_the_pipeline(name):
    case = case_of(CLASSIFIERS / name)
    classifier = TextClassifier.from_pretrained(CLASSIFIERS / name)
    logits = classifier.compute(tf.constant(case["texts"]))
    np.testing.assert_allclose(logits, case["logits"], rtol=1e-5, atol=1e-5)
    check_answers(classifier.classify(case["texts"]), case["answers"])


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", sorted(path.name for path in ENCODERS.iterdir()))
def test_vectors_are_those_of_sentence_transformers(name):
    case = case_of(ENCODERS / name)
    found = TextEncoder.from_pretrained(ENCODERS / name).encode(case["texts"])
    np.testing.assert_allclose(found, case["vectors"], rtol=1e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.one_of(4)
@pytest.mark.parametrize("jit_compile", [False, True])  # True pads to buckets
def test_a_saved_classifier(tmp_path, jit_compile):
    folder = CLASSIFIERS / "llama"
    case = case_of(folder)
    TextClassifier.from_pretrained(folder, jit_compile=jit_compile).save(tmp_path / "model")
    call = load_saved_model(tmp_path / "model").signatures["serving_default"]
    check_answers(call(text=tf.constant(case["texts"])), case["answers"])


@pytest.mark.slow
def test_a_saved_encoder_and_folders_that_are_served(tmp_path):
    folder = ENCODERS / "t5-mean"
    case = case_of(folder)
    TextEncoder.from_pretrained(folder).save(tmp_path / "model")
    for task in (Task(folder), Task(tmp_path / "model")):
        assert task.name == "embed"
        found = [row["vector"] for row in task(case["texts"])]
        np.testing.assert_allclose(found, case["vectors"], rtol=1e-5, atol=2e-6)
    [row] = Task(CLASSIFIERS / "mistral")(["a"])
    assert sorted(row) == ["label", "values"]


@pytest.mark.slow
def test_commands(tmp_path):
    case = case_of(CLASSIFIERS / "qwen2")
    done = command_here("classify", "--model", CLASSIFIERS / "qwen2", case["texts"][0])
    label, number, _ = done.stdout.decode().split("\t")
    best = max(case["answers"][0], key=lambda one: one["score"])
    assert label == best["label"] and float(number) == pytest.approx(best["score"], abs=1e-4)
    case = case_of(ENCODERS / "qwen2-last")
    texts = [text for text in case["texts"] if "\n" not in text]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    file = ("--file", tmp_path / "texts.txt")
    done = command_here("embed", "--model", ENCODERS / "qwen2-last", *file)
    expected = [case["vectors"][case["texts"].index(text)] for text in texts]
    np.testing.assert_allclose(np.load(io.BytesIO(done.stdout)), expected, rtol=1e-5, atol=2e-6)
    done = command_here("export", ENCODERS / "qwen2-last", "--output", tmp_path / "model")
    assert done.returncode == 0 and (tmp_path / "model" / "saved_model.pb").is_file()
    options = ("--pooler-activation", "linear", "--output", tmp_path / "vectors.npy")
    done = command_here("embed", "--model", ENCODERS / "qwen2-last", *file, *options)
    assert "--pooler-activation: expected none for a decoder or T5" in done.stderr.decode()


def test_weights_in_16_bits():
    folder = CLASSIFIERS / "qwen2"
    model = StoredWeights(load(folder), "bfloat16")
    found = TextClassifier(model, decoder_tokenizer(folder)).classify(["the cat"])
    expected = TextClassifier.from_pretrained(folder).classify(["the cat"])
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=0.1)


def test_what_is_refused(tmp_path):
    tokenizer = decoder_tokenizer(CLASSIFIERS / "gpt2")
    with pytest.raises(
        ArgumentError, match="model: expected a model of tf_transformer.bert, or a P"
    ):
        TextClassifier(load(VECTORS / "text_generation" / "gpt2"), tokenizer)
    with pytest.raises(ArgumentError, match="model: expected a text classifier, with labels"):
        TextClassifier(load_sentence_encoder(ENCODERS / "gpt2-mean"), tokenizer)
    with pytest.raises(ArgumentError, match="model: expected a LanguageModel or Transformer"):
        TextGenerator(load(CLASSIFIERS / "gpt2"), tokenizer, end_id=1)
    encoder = TextEncoder.from_pretrained(ENCODERS / "gpt2-mean")
    with pytest.raises(tf.errors.InvalidArgumentError, match="text: expected at least one token"):
        encoder.encode(["a", ""])
    with pytest.raises(ArgumentError, match="max_length: expected at least 3, got 2"):
        TextClassifier.from_pretrained(CLASSIFIERS / "llama", max_length=2).classify(["a"])
    shutil.copytree(ENCODERS / "llama-last", tmp_path / "llama")
    path = tmp_path / "llama" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "add_eos_token": False}))
    with pytest.raises(ArgumentError, match="add_eos_token: expected True in .*tokenizer_config"):
        TextEncoder.from_pretrained(tmp_path / "llama")
