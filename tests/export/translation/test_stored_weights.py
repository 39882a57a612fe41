"""Translators with 16 bits a weight in their files compute as the model of the rounded weights."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize
from serving_contract import check_serving_contract

from tf_transformer import BPETokenizer, Ensemble, GraphBPE, Transformer
from tf_transformer.export import StoredWeights, Translator
from tf_transformer.export.compile_for import warm_up_texts
from tf_transformer.export.saving import REQUESTS

TEXTS = ["low lower", "a newest", "", "lowest of wide"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    BPETokenizer.train(["low lower lowest", "newest widest of all"], 270).save(path)
    return GraphBPE.from_file(path)


def new_model(tokenizer, seed):
    size = tokenizer.vocab_size
    model = Transformer(1, 8, 2, 96, size, size, pe_input=32, pe_target=32)
    model.build()
    return randomize(model, seed)


def rounded(model, tokenizer, dtype):
    other = new_model(tokenizer, 0)
    for weight, value in zip(other.weights, model.weights, strict=True):
        weight.assign(tf.cast(tf.cast(value, dtype), tf.float32))
    return other


def results(translator):
    texts = tf.constant(TEXTS)
    found = translator.translate_beam(texts)
    return [translator.translate(texts), found["translations"], found["scores"]]


def files(path):
    return sum(file.stat().st_size for file in Path(path, "variables").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "several"),
    [("float16", False), pytest.param("bfloat16", True, marks=pytest.mark.whole)],
)
def test_results_are_those_of_the_rounded_weights(tokenizer, tmp_path, dtype, several):
    models = [new_model(tokenizer, seed) for seed in ((1, 2) if several else (1,))]
    before = [rounded(model, tokenizer, dtype) for model in models]
    model, other = (Ensemble(some) if several else some[0] for some in (models, before))
    translator = Translator(StoredWeights(model, dtype), tokenizer)
    for one in models:  # the stored weights are copies
        randomize(one, 9)
    want = results(Translator(other, tokenizer))
    translator.save(tmp_path / "stored")
    loaded = tf.saved_model.load(str(tmp_path / "stored"))
    for found in (results(translator), results(loaded)):
        for x, y in zip(found[:2], want[:2], strict=True):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_allclose(found[2], want[2], rtol=1e-5)
    assert len(set(want[0].numpy())) > 2


@pytest.mark.slow
def test_the_saved_model(tokenizer, tmp_path):
    model = new_model(tokenizer, 1)
    translator = Translator(StoredWeights(model, "float16"), tokenizer)
    translator.save(tmp_path / "stored")
    translator.save(tmp_path / "stored")
    assert files(tmp_path / "stored") < 4 * model.count_params()  # bytes of float32
    texts = tf.constant(TEXTS)
    want = translator.translate(texts).numpy()
    first, second = (tf.saved_model.load(str(tmp_path / "stored")) for _ in range(2))
    del first
    np.testing.assert_array_equal(second.translate(texts), want)
    np.testing.assert_allclose(
        second.signatures["encode"](text=texts)["vectors"],
        translator.encode(texts)["vectors"],
        rtol=1e-5,
        atol=1e-5,
    )
    assert second.warm_up(4, 16) == 1
    np.testing.assert_array_equal(second.translate(texts), want)
    # In a session, as TensorFlow Serving runs it, with the requests that it sends first.
    assert check_serving_contract(tmp_path / "stored")["serving_default"] == ["translation"]
    assert (tmp_path / "stored" / REQUESTS).is_file()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], os.fspath(tmp_path / "stored"))
        signature = graph.signature_def["translate"]
        source, target = signature.inputs["text"], signature.outputs["translation"]
        for batch in warm_up_texts(32):
            assert len(session.run(target.name, {source.name: batch})) == len(batch)
        np.testing.assert_array_equal(session.run(target.name, {source.name: TEXTS}), want)


def test_errors(tokenizer):
    model = new_model(tokenizer, 1)
    with pytest.raises(ValueError, match="dtype: expected one of float16, bfloat16, got 'int8'"):
        StoredWeights(model, "int8")
    weight = model.weights[0]
    weight.assign(tf.fill(weight.shape, 70_000.0))
    with pytest.raises(ValueError, match="float16, in which .* is not finite: its .* is 70000"):
        StoredWeights(model, "float16")
    assert StoredWeights(model, "bfloat16").weights[0].dtype == "bfloat16"
    half = Transformer(1, 8, 2, 16, 11, 11, pe_input=8, pe_target=8, dtype="float16")
    half.build()
    with pytest.raises(ValueError, match="model: expected float32, got float16 in "):
        StoredWeights(half, "bfloat16")
