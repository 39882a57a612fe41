"""LiteRT files: run by LiteRT, they give what the models give."""

import importlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from bert_choices import CHOICES
from random_weights import randomize
from tiny_bert import CONFIG, TOKENS, randomised, tiny_folder

from tf_transformer import Architecture, Transformer, bert, greedy_decode, litert, with_vocab_size
from tf_transformer.compression import quantized
from tf_transformer.export import write_litert
from tf_transformer.export.write_litert import convert, litert_functions
from tf_transformer.layers import AlibiPositions, GatedFeedForward, RMSNorm, RotaryPositions
from tf_transformer.layers.residuals import PreNorm
from tf_transformer.litert import padded, read_functions
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.tokenizers import BPETokenizer, TokenizerFile

pytestmark = pytest.mark.one_of(10, "served")

writing = importlib.import_module("tf_transformer.export.write_litert")
TEXTS = ["a good film", "was the plot unknown .", "bad", "电影 好 " * 20, "the film was bad"]
LABELS = ("坏", "good", "so-so")
PARTS = {
    "paper": None,
    "rotary, pre-norm": Architecture(
        positions=RotaryPositions(), residual=PreNorm(), feed_forward=GatedFeedForward("silu")
    ),
    "ALiBi, RMS, multi-query": Architecture(
        positions=AlibiPositions(), norm=RMSNorm(), num_key_value_heads=1
    ),
}


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    return read_tokenizer_file(tiny_folder(tmp_path_factory.mktemp("model") / "bert"))


@pytest.fixture(scope="module")
def translations(tmp_path_factory):
    """A tokenizer for a translator, and texts."""
    texts = ["the train was late", "a train", "late was the train that was late"] * 5
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    BPETokenizer.train(texts, vocab_size=270).save(path)
    return TokenizerFile.read(path), texts[:3]


def encoder(**options):
    return randomised(bert.SentenceEncoder(CONFIG, **options))


def classifier(**options):
    config = bert.BertConfig.of({**CONFIG.to_dict(), "labels": LABELS})
    return randomised(bert.BertForSequenceClassification(config, **options), seed=6)


def translator(vocab_size, architecture=None):
    model = Transformer(2, 24, 3, 17, vocab_size, vocab_size, 19, 23, architecture=architecture)
    model.build()
    return randomize(model, 3)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("model") / "bert")
    return bert.text_inputs(bert.read_tokenizer(folder), TEXTS, None, 11)


TOLERANCES = {"float32": 2e-6, "float16": 2e-3, "int8": 0.1, "full int8": 0.5}


@pytest.mark.one_of(10)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_classifier(dtype, tokenizer_file, inputs, tmp_path):
    model = classifier()
    # Centre the logits so that the model predicts more than one class.
    model.classifier.bias.assign_sub(tf.reduce_mean(model(inputs), 0))
    examples = TEXTS * 20 if dtype == "full int8" else None
    report = write_litert(
        model, tokenizer_file, tmp_path / "lite", weights_dtype=dtype, examples=examples
    )
    assert report["bytes"] == (tmp_path / "lite" / "model.tflite").stat().st_size
    lite = litert.load(tmp_path / "lite")
    labels, probabilities = lite.classify(TEXTS)
    expected = tf.nn.softmax(model(inputs)).numpy()
    np.testing.assert_allclose(probabilities, expected, atol=TOLERANCES[dtype])
    assert report["difference"] <= 2 * TOLERANCES[dtype] and len(set(labels)) > 1
    assert labels == [LABELS[n] for n in probabilities.argmax(1)]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("options", [{}, {"unpad": True, "pooling": "cls"}], ids=str)
def test_a_text_encoder(options, tokenizer_file, inputs, tmp_path):
    model = encoder(**options)
    write_litert(model, tokenizer_file, tmp_path / "lite", examples=TEXTS)
    lite = litert.load(tmp_path / "lite", threads=2)
    np.testing.assert_allclose(lite.encode(TEXTS), model(inputs), atol=2e-6)
    np.testing.assert_allclose(
        lite.encode(["bad"] * 17), lite.encode(["bad"]).repeat(17, 0), atol=1e-6
    )


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.one_of(10)
def test_bert_of_other_parts(choice):
    config = bert.BertConfig(13, 24, 2, 4, 11, max_position_embeddings=7, labels=("a", "b"))
    model = bert.BertForSequenceClassification(config, architecture=CHOICES[choice])
    model.build()
    check(randomize(model, 2), probes_of(13))


def probes_of(size):
    rng = np.random.default_rng(3)
    for length in (7, 3):
        mask = np.ones((2, length), np.int32)
        mask[0, length - 2 :] = 0
        ids = rng.integers(1, size, mask.shape).astype(np.int32)
        yield {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask}


def check(model, probes):
    """The one function of a model, traced for LiteRT, gives what the model gives."""
    _, functions, _ = litert_functions(model)
    file = writing.convert(functions, [w.value for w in model.weights])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(file)
        [function] = read_functions(path).values()
        for inputs in probes:
            found = function(**inputs)["probabilities"]
            np.testing.assert_allclose(found, tf.nn.softmax(model(inputs)), atol=1e-5)


# Rotary positions take their angles from a table there.
@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        "rotary, pre-norm",
        pytest.param("paper", marks=pytest.mark.whole),
        pytest.param("ALiBi, RMS, multi-query", marks=pytest.mark.whole),
    ],
)
def test_a_translator(parts, translations, tmp_path):
    tokenizer_file, texts = translations
    model = translator(270, PARTS[parts])
    write_litert(model, tokenizer_file, tmp_path / "lite", examples=texts)
    lite = litert.load(tmp_path / "lite")
    found = lite.translate([*texts, " "])
    assert found[-1] == ""
    for text, translation in zip(texts, found, strict=False):
        ids, _ = padded([[*lite.tokenizer.encode([text])[0][:18], 2]])
        most = min(2 * int((ids > 0).sum()) + 10, 23)
        state = model.start(tf.constant(ids[:, :19]), 23)
        expected = greedy_decode(
            model.step, state, 1, start_id=1, end_id=2, max_length=23, limits=tf.constant([most])
        )
        expected = [[n for n in row if n] for row in expected.numpy().tolist()]
        assert translation == lite.tokenizer.decode(expected)[0]


@pytest.mark.slow
def test_a_translator_never_chooses_an_id_without_a_token(translations, tmp_path):
    tokenizer_file, texts = translations
    model = translator(270, PARTS["paper"])
    wide = with_vocab_size(model, 272)
    bias = wide.final_layer.bias
    bias.assign(tf.concat([bias[:-2], (100.0, 100.0)], 0))  # they would be chosen always
    found = []
    for name, one in (("model", model), ("wide", wide)):
        write_litert(one, tokenizer_file, tmp_path / name, examples=texts)
        found.append(litert.load(tmp_path / name).translate(texts))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.one_of(10)
def test_a_translator_in_fewer_bits(dtype, translations, tmp_path):
    tokenizer_file, texts = translations
    sizes = {}
    for one in ("float32", dtype):
        folder = tmp_path / one
        model = Transformer(2, 24, 3, 51, 270, 270, 19, 23)
        model.build()
        sizes[one] = write_litert(model, tokenizer_file, folder, weights_dtype=one)["bytes"]
    assert sizes[dtype] < sizes["float32"]
    assert len(litert.load(tmp_path / dtype).translate(texts)) == 3


@pytest.mark.one_of(10)
@pytest.mark.parametrize("dtype", ["int8", "full int8"])
@pytest.mark.parametrize("rows", [1, 7])
def test_products_of_the_largest_integers_are_exact(dtype, rows, tmp_path):
    """Sums of two products in 16 bits would be cut off: half of the sum of equal signs."""
    signs = np.random.default_rng(4).choice([-1.0, 1.0], (1597, 13)).astype(np.float32)
    signs[:, 0] = 1
    kernel = tf.Variable(signs)
    product = tf.function(lambda x: {"y": tf.matmul(x, kernel)}, autograph=False)
    product = product.get_concrete_function(x=tf.TensorSpec((None, 1597), tf.float32, name="x"))
    x = np.ones((rows, 1597), np.float32)
    path = tmp_path / "product.tflite"
    path.write_bytes(convert({"product": product}, [kernel], dtype, [("product", {"x": x[:1]})]))
    # Outputs are rounded too in "full int8".
    step = 0 if dtype == "int8" else 1597 / 255
    found = read_functions(path)["product"](x=x)["y"]
    np.testing.assert_allclose(found, x.astype(np.float64) @ signs, rtol=0, atol=0.01 + step)


@pytest.mark.slow
def test_the_description(tokenizer_file, tmp_path):
    write_litert(classifier(), tokenizer_file, tmp_path / "lite", max_length=9)
    description = json.loads((tmp_path / "lite" / "litert.json").read_text("utf-8"))
    assert description["kind"] == "classifier" and description["labels"] == list(LABELS)
    assert description["max_length"] == 9 and description["weights_dtype"] == "float32"
    write_litert(encoder(), tokenizer_file, tmp_path / "lite")  # replaces it
    assert type(litert.load(tmp_path / "lite")).__name__ == "LiteTextEncoder"
    with pytest.raises(
        ValueError, match="expected a model for LiteClassifier, got one for LiteText"
    ):
        litert.LiteClassifier(tmp_path / "lite")


@pytest.mark.slow
def test_a_file_that_differs_is_not_kept(tokenizer_file, tmp_path, monkeypatch):
    other = classifier()
    randomize(other, 9)
    original = writing.convert

    def of_other(functions, weights, *arguments):
        _, functions, _ = litert_functions(other)
        return original(functions, [w.value for w in other.weights], *arguments)

    monkeypatch.setattr(writing, "convert", of_other)
    with pytest.raises(ValueError, match="expected a file within 0.0001 of the model, got"):
        write_litert(classifier(), tokenizer_file, tmp_path / "lite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nan_is_found(tokenizer_file, tmp_path):
    model = encoder()
    model.weights[-1].assign(model.weights[-1] * np.nan)
    with pytest.raises(ValueError, match="of the model, got nan"):
        write_litert(model, tokenizer_file, tmp_path / "lite")


def test_bad_input(tokenizer_file, translations, tmp_path):
    def said(message, model=None, file=tokenizer_file, folder=tmp_path / "lite", **options):
        with pytest.raises((ValueError, FileExistsError), match=message):
            write_litert(model or encoder(), file, folder, **options)

    said(
        "weights_dtype: expected one of float32, float16, int8, full int8, got 'int4'",
        weights_dtype="int4",
    )
    said('examples: expected texts for "full int8", got none', weights_dtype="full int8")
    said("model: expected one of BertForSequenceClassification, .* got Bert", bert.Bert(CONFIG))
    said("model: expected a built model", bert.SentenceEncoder(CONFIG))
    said("model: expected one in float32, got .* int8 weights", quantized(encoder()))
    half = bert.SentenceEncoder(CONFIG, dtype="mixed_float16")
    said("model: expected one in float32, got mixed_float16", randomised(half))
    said(f"tokenizer_file: expected at most {len(TOKENS)} tokens, .* got 270", file=translations[0])
    said("max_length: expected 3 to 11, got 12", max_length=12)
    said("examples: expected texts that are not blank, got none", examples=[" ", ""])
    narrow = Transformer(1, 24, 3, 17, 270, 269, 19, 23)
    narrow.build()
    said("tokenizer_file: expected at most 269 tokens", narrow, translations[0])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    said("other", folder=tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
