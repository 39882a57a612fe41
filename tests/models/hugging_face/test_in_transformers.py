"""Folders and adapters written here load in transformers and peft on torch; needs both."""

import json

import numpy as np
import pytest
from loading import VECTORS

from tf_transformer import add_adapters, load, save_adapters, save_pretrained

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # raised by transformers and torch

PUBLISHED, CLASSIFIERS = VECTORS / "published", VECTORS / "pooled" / "classifiers"
BASES = sorted(path.name for path in PUBLISHED.iterdir())
NAMES = ("input_ids", "attention_mask", "decoder_input_ids")


def changed(folder):
    """A model with other weights than its folder."""
    model, rng = load(folder), np.random.default_rng(7)
    for weight in model.weights:
        if not weight.path.endswith(("positions/table", "gamma")):
            weight.assign(weight + rng.normal(0, 0.05, weight.shape))
    return model


def theirs(folder, kind=""):
    """What transformers loads, without a tensor that is missing or left over."""
    name = json.loads((folder / "config.json").read_text("utf-8"))["architectures"][0]
    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert name.endswith(kind) and not report["missing_keys"] and not report["unexpected_keys"]
    return model.eval()


def golden(name):
    """Inputs there and here, the tokens whose logits count, and the logits of the folder."""
    found = np.load(PUBLISHED / name / "golden.npz")
    given = {key: found[key] for key in NAMES if key in found}
    inputs, tokens = given["input_ids"], given["attention_mask"].astype(bool)
    if "decoder_input_ids" in given:
        inputs = inputs, given["decoder_input_ids"]
        tokens = np.ones_like(inputs[1], bool)
    return given, inputs, tokens, found["logits"]


def logits_of(model, given):
    with torch.no_grad():
        return model(**{key: torch.tensor(value) for key, value in given.items()}).logits.numpy()


@pytest.mark.parametrize("name", BASES)
def test_a_saved_model_computes_the_same(name, tmp_path):
    model = changed(PUBLISHED / name)
    save_pretrained(model, tmp_path / "saved", tokenizer_from=PUBLISHED / name)
    given, inputs, tokens, plain = golden(name)
    expected = logits_of(theirs(tmp_path / "saved"), given)
    assert np.abs(expected - plain)[tokens].max() > 0.1
    np.testing.assert_allclose(model(inputs)[tokens], expected[tokens], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", sorted(path.name for path in CLASSIFIERS.iterdir()))
def test_a_saved_classifier_computes_the_same(name, tmp_path):
    model = changed(CLASSIFIERS / name)
    save_pretrained(model, tmp_path / "saved", tokenizer_from=CLASSIFIERS / name)
    given = {"input_ids": np.array([[5, 1, 9, 7]]), "attention_mask": np.ones((1, 4), int)}
    expected = logits_of(theirs(tmp_path / "saved", "ForSequenceClassification"), given)
    assert np.abs(expected - load(CLASSIFIERS / name)(given)).max() > 0.01
    np.testing.assert_allclose(model(given), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("targets", [("wq", "wv"), "all-linear"])
@pytest.mark.parametrize("name", BASES)
def test_saved_adapters_compute_the_same(name, targets, tmp_path):
    peft = pytest.importorskip("peft")
    model, rng = load(PUBLISHED / name), np.random.default_rng(7)
    for layer in add_adapters(model, rank=2, alpha=3, targets=targets):
        layer.lora_kernel_b.assign(rng.normal(0, 0.3, (2, layer.units)))
    save_adapters(model, tmp_path / "adapters")
    given, inputs, tokens, plain = golden(name)
    other = peft.PeftModel.from_pretrained(theirs(PUBLISHED / name), tmp_path / "adapters")
    expected = logits_of(other.eval(), given)
    assert np.abs(expected - plain)[tokens].max() > 0.1
    np.testing.assert_allclose(model(inputs)[tokens], expected[tokens], rtol=1e-5, atol=2e-5)
