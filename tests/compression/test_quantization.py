"""Models with int8 weights: near the original, the same in every mode, small once exported."""

import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize
from serving_contract import check_serving_contract
from tiny_bert import TOKENS, tiny_folder

from tf_transformer import BPETokenizer, GraphBPE, Transformer
from tf_transformer.bert import BertConfig, BertForMaskedLM, BertForSequenceClassification
from tf_transformer.compression import prune_heads, quantized
from tf_transformer.export import TextClassifier, Translator
from tf_transformer.export.translation.translator import IdTranslator
from tf_transformer.layers import Architecture
from tf_transformer.layers.feed_forwards import FlatDense, GatedFeedForward
from tf_transformer.layers.positions import RotaryPositions
from tf_transformer.layers.residuals import PreNorm
from tf_transformer.models.bert.text_inputs import read_tokenizer, text_inputs

pytestmark = pytest.mark.one_of(10, "parts")

PARTS = Architecture(
    positions=RotaryPositions(), residual=PreNorm(), feed_forward=GatedFeedForward("silu")
)


def transformer(architecture=None, **options):
    model = Transformer(1, 24, 4, 37, 11, 17, 20, 20, architecture=architecture, **options)
    model.build()
    return model


def pairs():
    rng = np.random.default_rng(2)
    source, target = rng.integers(1, 11, (3, 7)), rng.integers(1, 17, (3, 5))
    source[0, 4:], target[1, 3:] = 0, 0
    return tf.constant(source), tf.constant(target)


def bert(kind=BertForSequenceClassification, **config):
    model = kind(BertConfig(19, 24, 3, 4, 13, labels=("a", "b", "c"), **config))
    model.build()
    return model


def texts():
    rng = np.random.default_rng(3)
    mask = np.arange(7) < np.array([[7], [4], [1]])
    return {"input_ids": tf.constant(rng.integers(1, 19, (3, 7))), "attention_mask": mask}


MODELS = {
    "transformer": (transformer, pairs),
    "shared tables": (
        lambda: Transformer(1, 24, 4, 37, 13, 13, 20, 20, share_embeddings=True),
        lambda: (pairs()[0], pairs()[0]),
    ),
    "rotary, pre-norm, gated": (lambda: transformer(PARTS), pairs),
    "pruned": (lambda: prune_heads(transformer(), {"cross": {0: [1, 2]}}), pairs),
    "classifier": (bert, texts),
    "albert": (lambda: bert(num_hidden_groups=1, embedding_size=8), texts),
    "masked words": (lambda: bert(BertForMaskedLM), texts),
}
STATIC = ("transformer", "rotary, pre-norm, gated", "classifier")


def logits(outputs):
    return outputs.get("logits", outputs) if isinstance(outputs, dict) else outputs


def built(name):
    make, inputs = MODELS[name]
    model = make()
    if not model.built:
        model.build()
    return model, inputs()


def error(after, before):
    return np.abs(logits(after) - logits(before)).max() / np.abs(logits(before)).max()


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", MODELS)
def test_a_quantized_model_is_small_and_near_its_original(name):
    model, inputs = built(name)
    before, weights = model(inputs), model.get_weights()
    smaller = quantized(model, [(inputs, None)] if name in STATIC else None)
    assert type(smaller) is type(model)
    assert 1e-4 < error(smaller(inputs), before) < 0.1
    for weight, value in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, value)
    large = [w.path for w in smaller.weights if len(w.shape) == 2 and w.dtype != "int8"]
    allowed = ["position_embeddings", "token_type_embeddings", "pooler", "classifier"]
    allowed += ["word_embeddings"] * isinstance(model, BertForMaskedLM)  # its head needs them
    assert [path for path in large if not any(part in path for part in allowed)] == []


@pytest.mark.parametrize(
    ("name", "static", "jit_compile"),
    [
        ("classifier", False, False),
        ("shared tables", True, True),
    ],
)
def test_graphs_and_xla_are_near_it_too(name, static, jit_compile):
    model, inputs = built(name)
    smaller = quantized(model, [(inputs, None)] if static else None)
    call = tf.function(smaller, jit_compile=jit_compile, autograph=False)
    assert 1e-4 < error(call(inputs), model(inputs)) < 0.1
    assert error(call(inputs), smaller(inputs)) < 0.02  # a value half-way between two integers


def test_the_range_is_the_largest_value_of_all_batches():
    model, (source, _) = built("transformer")
    smaller = quantized(model, halves())
    wanted = np.abs(model.encoder.embedding(source)).max()
    layers = [layer for layer in smaller._flatten_layers() if isinstance(layer, FlatDense)]
    first = next(layer for layer in layers if layer.path.endswith("encoder/layer0/mha/wq"))
    assert first.input_range == pytest.approx(wanted)
    ranges = [layer.input_range for layer in layers]
    assert all(ranges) and len(set(ranges)) > 7


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.one_of(6)
def test_what_is_multiplied_has_seven_bits(name):
    """Word vectors of a BERT are only looked up."""
    smaller = quantized(built(name)[0])
    rounded = {w.path: np.abs(w.numpy()).max() for w in smaller.weights if w.dtype == "int8"}
    assert len(rounded) > 5
    for path, largest in rounded.items():
        assert largest == (127 if "word_embeddings" in path else 64), path


def halves():
    source, target = pairs()
    return [((source[:1], target[:1]), target[:1]), ((source[1:], target[1:]), target[1:])]


@pytest.mark.slow
def test_decoding_with_a_cache_gives_the_tokens_of_the_whole_model():
    smaller = quantized(transformer(PARTS))
    source, _ = pairs()
    tokens = IdTranslator(smaller, 1, 2).greedy(tf.cast(source, tf.int32)).numpy()
    for sentence, row in zip(source, tokens, strict=True):
        length = np.count_nonzero(row)
        target = tf.constant([[1, *row[:length]]])
        scores = smaller((tf.expand_dims(sentence, 0), target))[0].numpy()
        scores[:, 0] = -np.inf  # padding is never chosen
        np.testing.assert_array_equal(scores.argmax(-1)[:length], row[:length])


@pytest.mark.slow
def test_the_saved_translator_is_small_and_multiplies_integers(tmp_path):
    BPETokenizer.train(["low lower lowest", "newest widest of all"], 270).save(tmp_path / "t.json")
    tokenizer = GraphBPE.from_file(tmp_path / "t.json")
    size = tokenizer.vocab_size
    model = Transformer(1, 64, 4, 256, size, size, 32, 32, share_embeddings=True)
    model.build()
    model = prune_heads(model, {"encoder": {0: [1]}, "cross": {0: [0, 3]}})
    ids = tf.constant([[1, 5, 6, 2], [1, 7, 2, 0]])
    smaller = quantized(model, [((ids, ids), ids)])
    texts, folders = tf.constant(["low lower", "", "newest of all"]), {}
    for name, one in (("before", model), ("after", smaller)):
        folders[name] = tmp_path / name
        Translator(one, tokenizer).save(folders[name])
    loaded = tf.saved_model.load(str(folders["before"]))  # pruned, in float32
    expected = Translator(model, tokenizer).translate(texts)
    np.testing.assert_array_equal(loaded.translate(texts), expected)
    loaded = tf.saved_model.load(str(folders["after"]))
    expected = Translator(smaller, tokenizer).translate(texts)
    np.testing.assert_array_equal(loaded.translate(texts), expected)
    loaded.warm_up(1, 8)  # XLA has no such product
    np.testing.assert_array_equal(loaded.translate(texts[:1]), expected[:1])
    graph = (folders["after"] / "saved_model.pb").read_bytes()
    assert b"_QuantizedMatMul" in graph
    assert "serving_default" in check_serving_contract(folders["after"])
    before, after = (files(folder) for folder in folders.values())
    assert after < 0.35 * before


@pytest.mark.slow
def test_the_saved_classifier_is_small_and_multiplies_integers(tmp_path):
    folder = tiny_folder(tmp_path / "bert")
    model = BertForSequenceClassification(
        BertConfig(len(TOKENS), 64, 2, 4, 128, labels=("a", "b")), unpad=True
    )
    model.build()
    tokenizer = read_tokenizer(folder)
    smaller = quantized(randomize(model, 1))
    texts, sizes = ["a good film", "", "bad"], []
    for name, one in (("before", model), ("after", smaller)):
        TextClassifier(one, tokenizer).save(tmp_path / name)
        sizes.append(files(tmp_path / name))
    loaded = tf.saved_model.load(str(tmp_path / "after"))
    for classifier in (loaded, TextClassifier(smaller, tokenizer)):
        answer = classifier.classify(tf.constant(texts))["probabilities"]
        expected = tf.nn.softmax(smaller(text_inputs(tokenizer, texts)))
        np.testing.assert_allclose(answer, expected, atol=2e-3)
    assert sizes[1] < 0.6 * sizes[0]  # the table of positions is not small here


def files(path):
    return sum(file.stat().st_size for file in (path / "variables").iterdir())


def broken():
    """A model with NaN in one weight, which a maximum could ignore."""
    model = transformer()
    weight = model.weights[0]
    weight.assign(np.where(np.arange(weight.shape[0])[:, None] == 7, np.nan, weight))
    return model


@pytest.mark.parametrize(
    ("make", "batches", "message"),
    [
        (lambda: Transformer(1, 8, 2, 8, 5, 5, 9, 9), None, "model: expected a built model"),
        (lambda: transformer(dtype="mixed_bfloat16"), None, "float32, got bfloat16"),
        (transformer, [], "batches: expected at least one batch, got none"),
        (lambda: quantized(transformer()), None, "model: expected float weights, got int8"),
        (
            broken,
            [(pairs(), None)],
            "model, batches: expected finite values, got nan in the input of ",
        ),
    ],
)
def test_bad_input(make, batches, message):
    model = make()
    with pytest.raises(ValueError, match=message):
        quantized(model, batches)
