"""The page has the model's attention, its text stays text, and bad input is refused."""

import importlib

import numpy as np
import pytest
import tensorflow as tf
from explorer_pages import random_stack, read_stacks, write_page
from tiny_bert import CONFIG, randomised, tiny_folder

from tf_transformer import (
    Architecture,
    BPETokenizer,
    GraphBPE,
    LanguageModel,
    RotaryPositions,
    Transformer,
    bert,
)
from tf_transformer.visualize import explorer

pytestmark = pytest.mark.one_of(10, "parts")

SENTENCES = ["Where is the station?", "车站在哪里？"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    BPETokenizer.train(SENTENCES * 5, vocab_size=290).save(path)
    return GraphBPE.from_file(path)


def translator(tokenizer, layers=(3, 2), **options):
    sizes = {"pe_input": 64, "pe_target": 64, "share_embeddings": True}
    model = Transformer(layers, 24, 4, 16, *[tokenizer.vocab_size] * 2, **sizes, **options)
    return randomised(model)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("bert") / "bert")


def softmax(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "architecture",
    [None, Architecture(positions=RotaryPositions(), num_key_value_heads=2)],
    ids=["paper", "rotary, grouped"],
)
@pytest.mark.one_of(4)
def test_a_translators_page_has_its_attention(tokenizer, architecture, tmp_path):
    model = translator(tokenizer, architecture=architecture)
    page = explorer(model, SENTENCES, tmp_path / "page.html", tokenizer=tokenizer)
    encoder, decoder, cross = read_stacks(page.read_text("utf-8"))
    source, target = tokenizer.encode(SENTENCES).to_list()
    ids = tf.constant([[*source, tokenizer.end_id]]), tf.constant([[1, *target]])
    _, expected = model(ids, return_attention_weights=True)
    assert [len(stack.layers) for stack in (encoder, decoder, cross)] == [3, 2, 2]
    for n in range(2):
        for stack, block in ((decoder, "block1"), (cross, "block2")):
            weights = expected[f"decoder_layer{n + 1}_{block}"][0]
            np.testing.assert_allclose(stack.layers[n].weights, weights, atol=0.501 / 255)
    # Queries and keys belong to the weights: the same softmax in float64.
    past = np.triu(np.ones((len(decoder.queries),) * 2), 1)
    for stack, blocked in ((encoder, 0), (decoder, past), (cross, 0)):
        for queries, keys, weights in stack.layers:
            scores = queries @ np.swapaxes(keys, 1, 2) / np.sqrt(queries.shape[-1])
            scores = np.where(blocked, -np.inf, scores)
            np.testing.assert_allclose(weights, softmax(scores), atol=1 / 255)
    assert encoder.queries[-1] == cross.keys[-1] == cross.queries[-1] == "</s>"
    assert decoder.queries == ["<s>", *cross.queries[:-1]]
    assert len(cross.queries) == len(target) + 1 != len(cross.keys) == len(source) + 1


@pytest.mark.slow
def test_a_missing_translation_is_decoded_by_the_model(tokenizer, tmp_path, monkeypatch):
    asked = []

    class Stub:  # tests/export tests the real one, which takes seconds to trace
        def __init__(self, model, tokenizer):
            pass

        def translate(self, text):
            asked.append(text.numpy().tolist())
            return tf.constant([SENTENCES[1]])

    module = importlib.import_module("tf_transformer.visualize.attention")
    monkeypatch.setattr(module, "Translator", Stub)
    model = translator(tokenizer)
    pages = [
        explorer(model, texts, tmp_path / f"{n}.html", tokenizer=tokenizer).read_bytes()
        for n, texts in enumerate((SENTENCES[0], SENTENCES))
    ]
    assert pages[0] == pages[1]
    assert asked == [[SENTENCES[0].encode()]]


@pytest.mark.slow
def test_the_page_of_a_checkpoint_has_its_attention(checkpoint, tmp_path):
    path = tmp_path / "page.html"
    texts = ["a good film", "bad unknown."]
    [stack] = read_stacks(explorer(checkpoint, texts, path).read_text("utf-8"))
    tokenizer = bert.read_tokenizer(checkpoint)
    inputs = bert.text_inputs(tokenizer, texts[:1], texts[1:], CONFIG.max_position_embeddings)
    expected = bert.Bert.from_pretrained(checkpoint)(inputs, return_attentions=True)["attentions"]
    for (queries, keys, weights), exact in zip(stack.layers, expected, strict=True):
        np.testing.assert_allclose(weights, exact[0], atol=0.501 / 255)
        scores = queries @ np.swapaxes(keys, 1, 2) / np.sqrt(queries.shape[-1])
        np.testing.assert_allclose(softmax(scores), exact[0], atol=1e-3)
    words = ["[CLS]", "a", "good", "film", "[SEP]", "bad", "un", "known", ".", "[SEP]"]
    assert stack.keys == stack.queries == words and stack.kind == "encoder"

    model = bert.BertForMaskedLM.from_pretrained(checkpoint, new_head=True)
    again = explorer(model, texts, tmp_path / "again.html", tokenizer=tokenizer)
    assert again.read_bytes() == path.read_bytes()


def test_text_cannot_leave_its_place(tmp_path):
    label = "</script><script>alert(1)</script><!--\u2028\ud800@title@"
    stack = random_stack("encoder", [label, "b"], [label, "b"])
    page = write_page(tmp_path / "page.html", [stack], "<script>alert(2)</script>@data@")
    text = page.read_text("utf-8")
    assert text.count("<script") == text.count("</script") == 2
    assert "<!--" not in text and "\u2028" not in text
    assert "&lt;script&gt;alert(2)&lt;/script&gt;@data@" in text
    assert read_stacks(text)[0].keys[0] == label


def test_bert_base_on_64_tokens_takes_less_than_5_mb(tmp_path):
    tokens = [f"token{n}" for n in range(64)]
    stack = random_stack("encoder", tokens, tokens, heads=[12] * 12, width=64)
    page = write_page(tmp_path / "page.html", [stack])
    assert 2e6 < page.stat().st_size < 5e6


def test_a_page_asks_for_nothing(tmp_path):
    text = write_page(tmp_path / "page.html", [random_stack("cross", "abc", "de")]).read_text()
    assert "default-src 'none'" in text and "unsafe" not in text
    assert "http:" not in text and "https:" not in text


@pytest.mark.parametrize(
    "change, message",
    [
        ({"texts": []}, "texts: expected one or two str, got []"),
        ({"texts": ["a"] * 3}, "texts: expected one or two str"),
        ({"texts": [b"a"]}, "texts: expected one or two str"),
        ({"lang": "fr"}, "lang: expected one of en, zh, got 'fr'"),
        ({"tokenizer": None}, "tokenizer: expected the GraphTokenizer of the model, got None"),
        ({"model_or_folder": "."}, "tokenizer: expected None for a folder"),
        ({"model_or_folder": "nowhere", "tokenizer": None}, "model_or_folder: expected the folder"),
    ],
)
@pytest.mark.one_of(6)
def test_bad_input_is_refused(tokenizer, change, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {"model_or_folder": translator(tokenizer), "texts": "a", "tokenizer": tokenizer}
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        explorer(**{**arguments, "path": "page.html", **change})
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused(tokenizer, tmp_path):
    model = LanguageModel(1, 8, 2, 16, tokenizer.vocab_size, 16)
    with pytest.raises(ValueError, match="model_or_folder: expected .* got LanguageModel"):
        explorer(model, "a", tmp_path / "page.html", tokenizer=tokenizer)


def test_a_model_that_computes_nan_is_refused(tokenizer, tmp_path):
    model = translator(tokenizer)
    model.encoder.enc_layers[1].mha.wk.bias.assign([np.nan] * 24)
    with pytest.raises(ValueError, match="model: expected finite numbers in the attention of the"):
        explorer(model, SENTENCES, tmp_path / "page.html", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []
