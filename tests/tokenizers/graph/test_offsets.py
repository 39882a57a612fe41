"""Offsets in the graph are those of the Rust package, for texts of all scripts."""

import functools
import itertools
import json
import random
from pathlib import Path

import pytest
import tensorflow as tf
from tokenizer_files import MAKERS
from unicode_texts import SEEDS, all_characters, random_texts

from tf_transformer.tokenizers import GraphBPE, GraphTokenizer, Tokenizer, TokenizerFile
from tf_transformer.tokenizers.graph.offsets import Offsets
from tf_transformer.tokenizers.pipeline import byte_alphabet

pytestmark = pytest.mark.one_of(10, "texts")

VECTORS = Path(__file__).parents[2] / "vectors" / "spans"
KINDS = ["wordpiece", "wordpiece, cased", "GPT-2", "RoBERTa", "XLM-R", "T5", "unigram, bert"]
KINDS += ["ALBERT", "Llama 3", "Qwen2"]
# Characters that are removed, become several, share a place, or change their order.
CHARACTERS = (
    "aé `'\u0301\u0323\u0327\u0344\u1b44\u302e\x01\x7f\ufeff\ufffd\u200b\u00ad\n▁İǅﬁ㍿ﷺ①好豈한ｶﾞ😀"
)
ROBERTA = {"cls": ["a", 1], "sep": ["b", 2], "use_regex": True}


@pytest.fixture(scope="module")
def pair(corpus_texts, tmp_path_factory):
    """A function: kind of tokenizer and its other post-processor -> graph and Python tokenizers."""
    folder = tmp_path_factory.mktemp("offsets")
    texts = [text for language in ("en", "zh") for text in corpus_texts[language][::100]]

    @functools.cache
    def path_of(kind):
        path = folder / f"{kind}.json"
        MAKERS[kind](texts, path)
        content = json.loads(path.read_text("utf-8"))
        added = [token for token in content["added_tokens"] if token["special"]]
        path.write_text(json.dumps({**content, "added_tokens": added}), "utf-8")
        return path

    @functools.cache
    def load(kind, form=None, **settings):
        path = path_of(kind)
        if settings or form:
            content = json.loads(path.read_text("utf-8"))
            content |= {"normalizer": {"type": form}} if form else {}
            content |= {"post_processor": {**ROBERTA, **settings}} if settings else {}
            path = folder / "changed.json"
            path.write_text(json.dumps(content), encoding="utf-8")
        return GraphTokenizer.from_file(path), Tokenizer.load(path)

    return load


def check(pair, texts, traced=False):
    graph, python = pair
    encode = graph.encode_with_offsets
    if traced:
        strings = tf.TensorSpec([None], tf.string)
        encode = tf.function(encode, input_signature=[strings], autograph=False)
    for start in range(0, len(texts), 1000):
        batch = texts[start : start + 1000]
        ids, offsets = encode(tf.constant(batch))
        expected_ids, expected = python.encode_with_offsets(batch)
        assert ids.to_list() == expected_ids
        for text, got, wanted in zip(batch, offsets.to_list(), expected, strict=True):
            assert [*map(tuple, got)] == wanted, repr(text)


def drawn(kind, count, sentences=()):
    draw = random.Random(kind)
    short = ["".join(draw.choices(CHARACTERS, k=draw.randrange(9))) for _ in range(count)]
    return short + random_texts(count, 7, sentences)


@pytest.mark.parametrize(
    ("kind", "characters"),
    [
        ("bert", "aÉ\u0301\u0327\u1b44 \x01好İ"),
        ("roberta", "a \n😀é,"),
        ("xlm_roberta", "a;㎏①e\u0301 \t好"),
    ],
)
def test_every_short_text_of_characters_that_matter(kind, characters):
    path = VECTORS / kind / "reader" / "tokenizer.json"
    texts = ["".join(drawn) for n in range(5) for drawn in itertools.product(characters, repeat=n)]
    check((GraphTokenizer.from_file(path), Tokenizer.load(path)), texts[:1000] + texts[1000::3])


@pytest.mark.one_of(7)
@pytest.mark.parametrize("kind", KINDS)
def test_random_texts(pair, kind):
    check(pair(kind), SEEDS + drawn(kind, 500))


@pytest.mark.one_of(7)
@pytest.mark.parametrize("kind", KINDS)
def test_more_texts_in_a_graph(pair, all_texts, kind, request):
    count = 60_000 if request.config.getoption("--whole") else 400
    texts = drawn(kind, count, all_texts) + all_characters("a")[:: 120_000 // count]
    check(pair(kind), texts, traced=True)


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_forms_of_unicode(pair, form):
    draw = random.Random(form)
    letters = "aeoA한각ᄀ\u1161\u11a8ΐé\u0344\u0301\u0323\u0327\u0304\u0345ǖ\u0f73\u0f71①ﬁ \u0338<"
    texts = ["".join(draw.choices(letters, k=draw.randrange(9))) for _ in range(4000)]
    check(pair("Qwen2", form), texts)


@pytest.mark.parametrize("kind", ["ByteLevel", "RobertaProcessing"])
@pytest.mark.parametrize("trims", [True, False])
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.one_of(10)
def test_spaces_are_left_out_of_tokens(pair, kind, trims, adds):
    texts = ["".join(drawn) for n in range(5) for drawn in itertools.product("a \n", repeat=n)]
    settings = {"type": kind, "add_prefix_space": adds, "trim_offsets": trims}
    check(pair("GPT-2" if adds else "RoBERTa", **settings), texts)


def test_a_batch_equals_its_rows_one_by_one(pair):
    graph, _ = pair("RoBERTa")
    texts = ["", "\x01\x01a b", " ", "a b", "\x01", "a b "]
    _, offsets = graph.encode_with_offsets(texts)
    assert offsets.to_list() == [graph.encode_with_offsets([t])[1].to_list()[0] for t in texts]
    assert graph.encode_with_offsets([])[1].to_list() == []


def test_words(pair):
    text = "Tom unbelievability xyz"
    _, offsets, words = pair("RoBERTa")[0].locate(tf.constant([text, "", "Tom"]))
    first, none, last = words.to_list()
    assert first == [text[:end].count(" ") for _, end in offsets.to_list()[0]]
    assert len(first) > 3 and none == [] and {*last} == {3}


def split(*kinds, **settings):
    steps = [{"type": kind, "replacement": "▁", **settings} for kind in kinds]
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


NOT_FIRST = {
    "type": "Sequence",
    "normalizers": [{"type": "Lowercase"}, {"type": "BertNormalizer"}],
}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "bc"}
PLAIN = {"id": 1, "content": "[E]"}
PLAIN |= dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), False)
CUT = {"pattern": {"String": "a"}, "behavior": "Removed", "invert": False}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"normalizer": {"type": "Strip"}}, "'normalizer' is not.*got 'Strip'"),
        ({"normalizer": REPLACE}, "'normalizer.pattern' is not.*a String and one character"),
        ({"normalizer": NOT_FIRST}, "'normalizer' is not.*'BertNormalizer', .* first"),
        (split("UnicodeScripts"), "'pre_tokenizer' is not.*got 'UnicodeScripts'"),
        (split("Punctuation", "Metaspace"), "'pre_tokenizer' is not.*WhitespaceSplit"),
        (split("Metaspace", "WhitespaceSplit"), "'pre_tokenizer' is not.*WhitespaceSplit"),
        (split("Split", **CUT), "'pre_tokenizer.behavior' is not.*got 'Removed'"),
        ({"added_tokens": [PLAIN]}, r"'added_tokens' is not.*got \['\[E\]'\]"),
    ],
)
def test_steps_that_are_not_exact_are_refused(content, message):
    model = {"type": "WordPiece", "vocab": {"a": 0}}
    with pytest.raises(ValueError, match=message):
        Offsets(TokenizerFile.of({"model": model, "added_tokens": [], **content}))


def test_models_that_are_not_exact_are_refused(without_tracing):
    vocabulary = {letter: number for number, letter in enumerate(byte_alphabet())}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    graph = GraphBPE(TokenizerFile.of({"model": model}))
    with pytest.raises(ValueError, match="'model' is not supported.*got 'BPE'"):
        graph.encode_with_offsets(["a"])
