"""Added tokens in a graph are found and written as by the Rust package."""

import copy
import pickle
import random
import unicodedata
from dataclasses import replace

import pytest
import tensorflow as tf
from tokenizer_files import MODELS
from tokenizers import AddedToken
from tokenizers import Tokenizer as RustTokenizer
from unicode_texts import SEEDS, random_texts

from tf_transformer.tokenizers import (
    BPETokenizer,
    GraphTokenizer,
    GraphWordPiece,
    UnigramTokenizer,
    WordPieceTokenizer,
    metaspace_pipeline,
)
from tf_transformer.tokenizers.tokenizer_file import AddedToken as OurToken

pytestmark = pytest.mark.one_of(10, "texts")

TRAINING = ["hello world é E1 ab low lower"] * 9 + SEEDS
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
TRAINED = {
    "bpe": BPETokenizer.train(TRAINING, 400),
    "wordpiece": WordPieceTokenizer.train(TRAINING, 700),
    "unigram": UnigramTokenizer.train(TRAINING, 900),
    "wordpiece, metaspace": WordPieceTokenizer.train(TRAINING, 900, metaspace_pipeline()),
    "unigram, first": UnigramTokenizer.train(
        [text for text in TRAINING if "<" not in text],
        900,
        replace(metaspace_pipeline(), normalizer=None, pre_tokenizer=METASPACE),
    ),
}
# They overlap, contain each other, are equal after normalization, are words of the vocabulary,
# begin and end with letters and spaces, and contain special tokens.
CONTENTS = ["[E1]", "[E", "E1]", " [E1]", "é", "É", "ab", "b ", "  ", "[CLS]x", "x</s>", "我"]
CONTENTS += ["e\u0301", "ABC", "bc", "a", "##", "İ", "ß", "[E1][E1]", "\u3000[E1]", "low"]
PIECES = [*CONTENTS, "hello", "x", "E", "1]", " ", "-", "é", "\n", "</s>", "[MASK]", "\u2003"]


def plain(text):
    """What some normalizer makes equal is equal."""
    return unicodedata.normalize("NFD", text).translate({0x301: None, 0x3000: " "}).lower()


def graph_of(tokenizer, path):
    tokenizer.save(path)
    return GraphTokenizer.from_file(path)


def with_tokens(kind, tokens, path):
    """The graph tokenizer with added tokens, and the Rust package's."""
    tokenizer = copy.copy(TRAINED[kind])
    tokenizer.add_tokens(tokens)
    return graph_of(tokenizer, path), RustTokenizer.from_file(str(path))


def ids_of(rust, texts, parse_special_tokens):
    rust.encode_special_tokens = not parse_special_tokens
    return [e.ids for e in rust.encode_batch(texts, add_special_tokens=False)]


def check(graph, rust, texts):
    for parses in (True, False):
        expected = ids_of(rust, texts, parses)
        found = graph.encode(texts, parse_special_tokens=parses)
        for text, ids, wanted in zip(texts, found.to_list(), expected, strict=True):
            assert ids == wanted, repr(text)
        decoded = [text.decode("utf-8") for text in graph.decode(found).numpy()]
        # The package does not drop special tokens that its normalizer changes.
        special = set(graph.special_tokens.values())
        kept = [[number for number in ids if number not in special] for ids in expected]
        assert decoded == rust.decode_batch(kept, skip_special_tokens=False)


@pytest.mark.one_of(10)
@pytest.mark.usefixtures("without_tracing")
@pytest.mark.parametrize("kind", TRAINED)
@pytest.mark.parametrize("seed", range(3))
def test_random_tokens_in_random_texts(tmp_path, kind, seed):
    draw = random.Random(f"{kind}{seed}")
    tokens = [
        AddedToken(
            content,
            normalized=draw.random() < 0.5,
            single_word=draw.random() < 0.3,
            lstrip=draw.random() < 0.3 and not content.isspace(),
            rstrip=draw.random() < 0.3,
            special=draw.random() < 0.3,
        )
        for content in draw.sample(CONTENTS, draw.randint(2, 7))
    ]
    tokens = list({plain(token.content): token for token in tokens}.values())
    texts = ["".join(draw.choices(PIECES, k=draw.randint(0, 9))) for _ in range(1000)]
    texts += random_texts(100, seed, ["hello [E1] world", *SEEDS[1:]])
    check(*with_tokens(kind, tokens, tmp_path / "tokenizer.json"), texts)


@pytest.mark.one_of(10)
@pytest.mark.usefixtures("without_tracing")
@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_each_flag_beside_every_kind_of_character(tmp_path, kind, flag):
    # After normalization, since ours drops the spaces around a piece before it.
    tokens = [AddedToken("[E1]", **{flag: True}), AddedToken("q")]
    marks = [chr(code) for code in (*range(0x3000), 0x3007, 0xFEFF, 0x4E00, 0x1D7CE, 0x1F600)]
    texts = [form.format(c) for c in marks for form in ("a{0}[E1]{0}b", "{0}[E1]", "[E1]{0}")]
    check(*with_tokens(kind, tokens, tmp_path / "tokenizer.json"), texts)


@pytest.mark.usefixtures("without_tracing")
def test_the_longest_counts(tmp_path):
    tokens = ["[E", "[E1]", "[E1][E1]", "ü"]
    graph, rust = with_tokens("wordpiece", tokens, tmp_path / "tokenizer.json")
    check(graph, rust, ["[E1][E1][E1][E [e1", "ü é É Ü", "x[E1[E1]"])
    size = TRAINED["wordpiece"].vocab_size
    first, second = graph.encode(["[E1][E1][E1][E", "ü"]).to_list()
    assert first == [size + 2, size + 1, size] and second == [size + 3]


@pytest.mark.parametrize("special", [False, True])
def test_tokens_that_are_equal_after_normalization_are_refused(special):
    # The Rust package finds one of them, another each time that it reads the file.
    tokenizer = copy.copy(TRAINED["wordpiece"])
    size = tokenizer.vocab_size
    tokens = ["É", AddedToken("e", special=special, normalized=True)]
    with pytest.raises(ValueError, match="'added_tokens' .*tokens that differ after normalizati"):
        tokenizer.add_tokens(tokens)
    assert tokenizer.vocab_size == size and tokenizer.encode(["é"]) != [[size]]
    with pytest.raises(ValueError, match="'added_tokens' .*tokens that differ after normalizati"):
        fields = ({"content": "É", "special": False}, {"content": "e", "special": special})
        added = [OurToken(id=None, normalized=True, **one) for one in fields]
        GraphWordPiece(tokenizer._file.with_added_tokens(added))


@pytest.mark.one_of(10)
@pytest.mark.usefixtures("without_tracing")
@pytest.mark.parametrize("kind", [kind for kind in TRAINED if kind != "unigram, first"])
def test_an_added_token_is_one_id(tmp_path, kind):
    tokenizer = copy.copy(TRAINED[kind])
    size = tokenizer.vocab_size
    tokenizer.add_tokens([AddedToken("[E1]", normalized=False)])
    graph = graph_of(tokenizer, tmp_path / "tokenizer.json")
    hello, world = tokenizer.encode(["hello", "world"])
    rows = graph.encode(["hello[E1]world[E1]", "[E1]", "", "hello"]).to_list()
    assert rows == [[*hello, size, *world, size], [size], [], hello]
    assert graph.vocab_size == size + 1
    # What a user types is still no special token.
    ends = set(graph.special_tokens.values()) - {graph.ids_of_roles.get("unknown")}
    [ids] = graph.encode(["[E1]</s>[SEP]<pad>[E1]"]).to_list()
    assert ids[0] == ids[-1] == size and not ends & set(ids)


@pytest.mark.slow
def test_long_texts_with_many_tokens(tmp_path):
    graph, rust = with_tokens("bpe", ["[E1]", "ab"], tmp_path / "tokenizer.json")
    check(graph, rust, ["[E1]" * 3000, "ab" * 2500, "x" * 20000 + "ab", "a" * 999, "[E" * 999])


def test_invalid_bytes_beside_a_token(tmp_path):
    graph, rust = with_tokens("wordpiece", ["[E1]"], tmp_path / "tokenizer.json")
    found = graph.encode([b"low\xff[E1]\xc3", b"[E\xff1]"])
    texts = ["low\ufffd[E1]\ufffd", "[E\ufffd1]"]
    assert found.to_list() == ids_of(rust, texts, False)


@pytest.mark.slow
def test_a_saved_model_finds_them(tmp_path):
    tokens = [AddedToken("[E1]", normalized=False), AddedToken("É", lstrip=True)]
    graph, rust = with_tokens("wordpiece", tokens, tmp_path / "tokenizer.json")
    tf.saved_model.save(graph, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    texts = ["low [E1]É hello  é</s>[SEP]low", "", "[E1]"]
    parsed = loaded.encode_strings(tf.constant(texts), True)
    assert parsed.to_list() == ids_of(rust, texts, True)
    assert graph.special_tokens["[SEP]"] in parsed[0]
    ids = loaded.encode_strings(tf.constant(texts))
    assert ids.to_list() == ids_of(rust, texts, False) != parsed.to_list()
    decoded = loaded.decode_ids(ids.to_tensor()).numpy().tolist()
    assert decoded == graph.decode(ids).numpy().tolist()


@pytest.mark.one_of(10)
@pytest.mark.usefixtures("without_tracing")
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))]
)
def test_a_copy_is_the_same_graph_tokenizer(tmp_path, kind, copied):
    graph, _ = with_tokens(kind, ["[E1]", AddedToken("Z", special=True)], tmp_path / "file.json")
    texts = ["low [E1] Z </s>[SEP]", "hello world"]
    again = copied(graph)
    del graph._id_of_word  # nothing is shared with the original
    assert type(again) is type(graph)
    assert (again.special_tokens, again.vocab_size) == (graph.special_tokens, graph.vocab_size)
    fresh = GraphTokenizer.from_file(tmp_path / "file.json")
    ids = fresh.encode(texts, add_special_tokens=True)
    assert again.encode(texts, add_special_tokens=True).to_list() == ids.to_list()
    parsed = fresh.encode(texts, parse_special_tokens=True).to_list()
    assert again.encode(texts, parse_special_tokens=True).to_list() == parsed
    assert fresh.special_tokens["Z"] in parsed[0]
    assert again.decode(ids).numpy().tolist() == fresh.decode(ids).numpy().tolist()


def change_normalizer(content):
    content["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}


def test_what_the_graph_cannot_find_is_refused(rewrite):
    token = {"id": 8000, "content": " ", "normalized": True, "special": False}
    token |= {"single_word": False, "lstrip": False, "rstrip": False}

    def empty(content):
        change_normalizer(content)
        content["added_tokens"].append(token)

    def first(content):
        change_normalizer(content)
        content["pre_tokenizer"] = METASPACE

    for change, part in ((empty, "added_tokens"), (first, "pre_tokenizer.prepend_scheme")):
        path = rewrite(change, "unigram")
        with pytest.raises(ValueError, match=f"The part '{part}' is not supported"):
            GraphTokenizer.from_file(path)
