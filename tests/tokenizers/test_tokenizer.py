"""Behavior shared by all three models, in Python."""

import concurrent.futures
import copy
import dataclasses
import multiprocessing
import pickle
import re
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizer_files import MAKERS, MODELS
from tokenizers import AddedToken
from unicode_texts import SEEDS

from tf_transformer.tokenizers import (
    BPETokenizer,
    GraphWordPiece,
    Tokenizer,
    TokenizerFile,
    UnigramTokenizer,
    WordPieceTokenizer,
    bert_pipeline,
    byte_level_pipeline,
    metaspace_pipeline,
)
from tf_transformer.tokenizers.pipeline import BERT_SPECIAL_TOKENS

pytestmark = pytest.mark.one_of(10, "texts")

CLASSES = [BPETokenizer, WordPieceTokenizer, UnigramTokenizer]
TRAINERS = [*(cls.train for cls in CLASSES), WordPieceTokenizer.train_by_information]


@pytest.fixture(params=MODELS)
def tokenizer(request, pair_of):
    return pair_of(request.param)[1]


def plain(text):
    """Lowercase, without accents and spaces, using Python's Unicode tables."""
    letters = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in letters if c.isalnum() or c == "'")


@pytest.mark.parametrize("train", TRAINERS)
@pytest.mark.parametrize("pipeline", [None, metaspace_pipeline(), bert_pipeline()])
@pytest.mark.one_of(10)
def test_training_twice_gives_the_same_file(tmp_path, corpus_texts, train, pipeline):
    texts = corpus_texts["zh"][:300] + corpus_texts["en"][:300]
    for name in "ab":
        train(iter(texts), 1500, pipeline).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    # The tokenizer in memory equals the file; scores are bitwise identical.
    loaded = Tokenizer.load(tmp_path / "a")
    assert loaded.encode(texts) == train(texts, 1500, pipeline).encode(texts)
    assert loaded.vocab_size <= 1500
    assert loaded.pad_id == 0


@pytest.mark.parametrize("cls", CLASSES)
def test_training_from_files(tmp_path, corpus_texts, cls):
    texts = list(corpus_texts["en"][:500])
    for name, part in (("a.txt", texts[:200]), ("b.txt", texts[200:])):
        (tmp_path / name).write_text("\n".join(part) + "\n", encoding="utf-8")
    from_files = cls.train([tmp_path / "a.txt", tmp_path / "b.txt"], 600)
    assert from_files.encode(texts) == cls.train(texts, 600).encode(texts)


def test_a_line_of_a_file_is_a_text_without_its_end(tmp_path):
    # A pipeline that keeps every character would learn the line ending.
    pipeline = dataclasses.replace(
        metaspace_pipeline(),
        normalizer={"type": "NFC"},
        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    )
    (tmp_path / "a.txt").write_text("low\nlower", encoding="utf-8")
    tokenizer = BPETokenizer.train([tmp_path / "a.txt"], 50, pipeline)
    tokens = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
    assert "l" in tokens and not any("\n" in token for token in tokens)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_file_that_is_no_text_is_named(tmp_path, cls):
    (tmp_path / "a.txt").write_bytes(b"low\n\xff\n")
    with pytest.raises(ValueError, match="texts: expected UTF-8 in .*a.txt, got"):
        cls.train([tmp_path / "a.txt"], 300)


@pytest.mark.parametrize("train", TRAINERS[1:])
def test_texts_of_which_nothing_is_left_are_refused(train):
    with pytest.raises(ValueError, match="texts: expected some text after normalization"):
        train(["\x01", "\x00 \x02"], 300)


def test_characters_that_a_normalizer_makes_count():
    # One character becomes eighteen: the alphabet is larger than the texts suggest.
    pipeline = dataclasses.replace(metaspace_pipeline(), normalizer={"type": "NFKD"})
    with pytest.raises(ValueError, match="vocab_size: expected .*got 8"):
        UnigramTokenizer.train(["\ufdfa\ufdfa"], 8, pipeline)


def test_a_size_may_be_of_numpy():
    assert BPETokenizer.train(["low"], np.int64(259)).vocab_size == 259


def test_tokens_and_ids_name_each_other(tokenizer):
    ids = list(range(tokenizer.vocab_size))
    tokens = tokenizer.ids_to_tokens(ids)
    assert len(set(tokens)) == len(ids) == 8000
    assert tokenizer.tokens_to_ids(tokens) == ids
    for name, number in tokenizer.special_tokens.items():
        assert tokens[number] == name


def test_offsets_are_places_in_the_text_as_given(tokenizer):
    texts = ["  Tom didn't\t know  我不知道。", "Ünïcödé", ""]
    ids, offsets = tokenizer.encode_with_offsets(texts)
    assert ids == tokenizer.encode(texts)
    assert [len(row) for row in ids] == [len(row) for row in offsets]
    for text, row, spans in zip(texts, ids, offsets, strict=True):
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert spans == sorted(spans)
        for token, (start, end) in zip(tokenizer.ids_to_tokens(row), spans, strict=True):
            letters = token.strip("▁Ġ").removeprefix("##")
            if letters.isascii() and letters.isalpha():
                assert letters.lower() == plain(text[start:end])
    [text_with_spaces, *_] = texts
    know = next(span for span in offsets[0] if "know" in text_with_spaces[slice(*span)])
    assert know[1] == text_with_spaces.index("know") + 4


def test_special_tokens_in_a_text_are_text(tokenizer):
    unknown = {tokenizer.special_tokens.get(name) for name in ("[UNK]", "<unk>")}
    special = set(tokenizer.special_tokens.values()) - unknown
    texts = [*tokenizer.special_tokens, "a<s>b</s>c<pad>[CLS]", "<unk><unk>"]
    for ids in tokenizer.encode(texts):
        assert ids and not special & set(ids)


def test_special_tokens_are_dropped_by_decode(tokenizer):
    [ids] = tokenizer.encode(["hello"])
    around = [tokenizer.pad_id, tokenizer.start_id, *ids, tokenizer.end_id, tokenizer.pad_id]
    assert tokenizer.decode([around]) == ["hello"]
    assert tokenizer.decode([[], [tokenizer.pad_id, tokenizer.end_id]]) == ["", ""]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece, metaspace", "bpe of characters"])
@pytest.mark.one_of(10)
def test_decode_gives_back_all_but_the_kind_of_space(pair_of, all_texts, kind):
    _, tokenizer = pair_of(kind)
    texts = [" ".join(text.split()) for text in all_texts]
    assert tokenizer.decode(tokenizer.encode(texts)) == texts


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece, cased", "BERT"])
@pytest.mark.one_of(6)
def test_what_bert_decodes_has_the_same_ids(pair_of, all_texts, kind):
    _, tokenizer = pair_of(kind)
    unknown = tokenizer.unknown_id
    ids = [row for row in tokenizer.encode(all_texts) if unknown not in row]
    assert len(ids) > 0.9 * len(all_texts)
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_a_trace_ends_in_the_ids(pair_of, all_texts, kind):
    _, tokenizer = pair_of(kind)
    texts = [*all_texts[::400], *(text for text in SEEDS if len(text) < 60)]
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        trace = tokenizer.trace(text)
        assert [number for word in trace for number in word["ids"]] == ids, repr(text)


@pytest.mark.parametrize("train", TRAINERS)
@pytest.mark.parametrize("texts", [[], ["", " \n"], iter(())])
def test_empty_corpus_is_refused(train, texts):
    with pytest.raises(ValueError, match="texts: expected at least one text"):
        train(texts, 300)


@pytest.mark.parametrize("train", TRAINERS)
def test_texts_must_be_strings(train):
    for texts in ("abc", Path("abc")):
        with pytest.raises(TypeError, match="got one"):
            train(texts, 300)
    with pytest.raises(TypeError, match="got bytes"):
        train([b"abc"], 300)
    with pytest.raises(ValueError, match=r"U\+D800 at character 1"):
        train(["a\ud800"], 300)
    with pytest.raises(FileNotFoundError):
        train([Path("/no/such/file")], 300)


def test_what_is_encoded_must_be_strings(tokenizer):
    for encode in (tokenizer.encode, tokenizer.encode_with_offsets):
        with pytest.raises(TypeError, match="got one string"):
            encode("abc")
        with pytest.raises(TypeError, match="got bytes"):
            encode([b"abc"])
        with pytest.raises(ValueError, match=r"U\+DFFF at character 0"):
            encode(["\udfff"])
    with pytest.raises(TypeError, match="got int"):
        tokenizer.trace(3)


@pytest.mark.parametrize("train", TRAINERS)
@pytest.mark.parametrize("vocab_size", [0, 2, 20, "300", 9.5])
def test_a_vocabulary_smaller_than_the_alphabet_is_refused(train, vocab_size):
    with pytest.raises(ValueError, match=f"vocab_size: expected .*got {vocab_size!r}"):
        train(["the quick brown fox jumps over the lazy dog"], vocab_size)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("vocab_size", [10, 30])
def test_the_smallest_size_that_is_named_is_enough(cls, vocab_size):
    texts = ["the quick brown fox jumps over the lazy dog"] * 2
    with pytest.raises(ValueError, match="vocab_size: expected") as refused:
        cls.train(texts, vocab_size)
    smallest = int(str(refused.value).split("at least ")[1].split()[0])
    assert smallest > vocab_size
    assert cls.train(texts, smallest).vocab_size == smallest


@pytest.mark.parametrize("cls", [WordPieceTokenizer, UnigramTokenizer])
def test_a_pipeline_without_an_unknown_token_is_refused(cls):
    with pytest.raises(ValueError, match="pipeline: expected one with an unknown token"):
        cls.train(["abc"], 300, byte_level_pipeline())


@pytest.mark.parametrize("number", [-1, 8000])
def test_ids_outside_the_vocabulary_are_refused(tokenizer, number):
    for call in (tokenizer.ids_to_tokens, lambda ids: tokenizer.decode([[5], ids])):
        with pytest.raises(ValueError, match=rf"ids: .*\[0, 8000\), got {number}"):
            call([5, number])


@pytest.mark.parametrize("ids", [[1, 2], [[0.5]], ["ab"], [None]])
def test_ids_must_be_rows_of_integers(tokenizer, ids):
    with pytest.raises(TypeError, match="ids: expected a row of integers"):
        tokenizer.decode(ids)


def test_tokens_outside_the_vocabulary_are_refused(tokenizer):
    with pytest.raises(ValueError, match=r"tokens: .*got also \['no such token'\]"):
        tokenizer.tokens_to_ids(["a", "no such token"])


def test_a_role_without_a_token_is_refused(tokenizer):
    if "[MASK]" not in tokenizer.special_tokens:
        with pytest.raises(ValueError, match=r"mask_id: expected one of .*'\[MASK\]'"):
            tokenizer.mask_id  # noqa: B018


@pytest.mark.parametrize("kind", MODELS)
def test_missing_package_says_what_to_install(monkeypatch, file_of, kind):
    path = file_of(kind)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for call in (
        lambda: Tokenizer.load(path),
        *(lambda train=train: train(["a"], 300) for train in TRAINERS),
    ):
        with pytest.raises(ImportError, match=r'pip install -e "\.\[train\]"'):
            call()


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


COPIES = [pickled, copy.copy, copy.deepcopy]


@pytest.fixture(params=MAKERS)
def any_tokenizer(request, pair_of):
    return pair_of(request.param)[1]


ATTACKS = ["hello </s> <s><pad>[SEP] [CLS]", "[MASK]<unk><|endoftext|></s>", "我不知道。"]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.one_of(10)
def test_a_copy_is_the_same_tokenizer(any_tokenizer, all_texts, copied):
    texts = [*ATTACKS, *SEEDS, *all_texts[::300]]
    again = copied(any_tokenizer)
    assert type(again) is type(any_tokenizer) and again is not any_tokenizer
    for add_special_tokens in (True, False):
        expected = any_tokenizer.encode(texts, add_special_tokens)
        assert again.encode(texts, add_special_tokens) == expected
    assert again.encode_with_offsets(texts) == any_tokenizer.encode_with_offsets(texts)
    assert again.decode(expected) == any_tokenizer.decode(expected)
    assert again.ids_of_roles == any_tokenizer.ids_of_roles
    assert again.vocab_size == any_tokenizer.vocab_size


def test_a_trained_tokenizer_keeps_its_end_to_itself_in_a_copy():
    tokenizer = BPETokenizer.train(["hello world"] * 3, vocab_size=270)
    for copied in (tokenizer, *(make(tokenizer) for make in COPIES)):
        assert copied.encode(["hello </s>"]) == [[266, 223, 30, 17, 85, 32]]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_vocabulary_of_bert(tmp_path, copied):
    (tmp_path / "vocab.txt").write_text("\n".join([*BERT_SPECIAL_TOKENS, "low", "", ""]))
    one = WordPieceTokenizer.load_vocabulary(tmp_path / "vocab.txt", lowercase=False)
    for tokenizer in (one, Tokenizer(one._file)):
        again = copied(tokenizer)
        assert again.encode(["low [SEP] LOW"]) == tokenizer.encode(["low [SEP] LOW"])
        assert again.encode(["low [SEP]"]) == [[5, 1, 1, 1]]


@pytest.mark.parametrize("setting", ["truncation", "padding"])
def test_settings_that_are_ignored_are_ignored_in_a_copy(rewrite, setting):
    settings = {
        "truncation": {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 99},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<pad>",
        },
    }
    path = rewrite(lambda content: content.update({setting: settings[setting]}))
    tokenizer = Tokenizer.load(path)
    [ids] = tokenizer.encode(["a rather long text"])
    assert 2 < len(ids) < 99
    for copied in COPIES:
        assert copied(tokenizer).encode(["a rather long text"]) == [ids]


def test_a_copy_keeps_what_was_set_on_it():
    tokenizer = BPETokenizer.train(["hello world"] * 3, vocab_size=270)
    tokenizer.special_tokens["[MASK]"] = 7
    tokenizer.name = "mine"
    for copied in COPIES:
        again = copied(tokenizer)
        assert again.mask_id == 7 and again.name == "mine"


def encode_in_process(tokenizer, texts):
    return tokenizer.encode(texts)


@pytest.mark.slow
def test_a_process_pool_has_the_same_tokenizer(file_of):
    loaded = [Tokenizer.load(file_of(kind)) for kind in MODELS]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        found = list(pool.map(encode_in_process, loaded, [ATTACKS] * 3))
    assert found == [tokenizer.encode(ATTACKS) for tokenizer in loaded]


def test_a_copy_of_a_file_is_read_again(file_of):
    file = TokenizerFile.read(file_of("unigram"))
    for copied in COPIES:
        assert copied(file) == file and copied(file).vocabulary == file.vocabulary


def rust_with(tokenizer, tokens):
    """The Rust package's tokenizer with added tokens, special ones as plain text."""
    rust = tokenizers.Tokenizer.from_str(tokenizer._file.text)
    count = rust.add_tokens(tokens)
    rust.encode_special_tokens = True
    return rust, count


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.one_of(10)
def test_added_tokens_are_those_of_the_rust_package(pair_of, all_texts, tmp_path, kind):
    tokenizer = copy.copy(pair_of(kind)[1])
    tokens = ["[E1]", "Tom", AddedToken("我", normalized=False, rstrip=True), "[E1]x"]
    rust, count = rust_with(tokenizer, tokens)
    size = tokenizer.vocab_size
    assert tokenizer.add_tokens(tokens) == count == 4
    assert tokenizer.add_tokens(iter(tokens)) == 0
    assert tokenizer.vocab_size == rust.get_vocab_size() > size
    assert tokenizer.special_tokens == pair_of(kind)[1].special_tokens
    texts = ["a [E1] b", "[e1][E1]x我 Tom</s>[E1", *ATTACKS, *SEEDS, *all_texts[::100]]
    expected = [e.ids for e in rust.encode_batch(texts, add_special_tokens=False)]
    rust.encode_special_tokens = False  # the package's default
    parsed = [e.ids for e in rust.encode_batch(texts, add_special_tokens=False)]
    tokenizer.save(tmp_path / "tokenizer.json")
    for one in (tokenizer, pickled(tokenizer), Tokenizer.load(tmp_path / "tokenizer.json")):
        assert one.encode(texts, parse_special_tokens=True) == parsed
        assert one.encode(texts) == expected
        assert one.decode(expected) == rust.decode_batch(expected)
    [number] = tokenizer.tokens_to_ids(["[E1]"])
    assert number in expected[0] and tokenizer.ids_to_tokens([number]) == ["[E1]"]


def test_an_added_special_token_is_plain_text_in_a_text():
    tokenizer = WordPieceTokenizer.train(["low lower"] * 2, vocab_size=30)
    [before] = tokenizer.encode(["low [E1]"])
    special = AddedToken("[É1]", special=True, normalized=True)
    assert tokenizer.add_tokens([AddedToken("[E1]", special=True), special]) == 2
    assert tokenizer.encode(["low [E1]"]) == [before]
    ids = tokenizer.tokens_to_ids(["[E1]", "[É1]"])
    assert tokenizer.special_tokens["[E1]"] == ids[0]
    # The Rust package would keep the second, as "[e1]".
    assert tokenizer.decode([[*tokenizer.encode(["low"])[0], *ids]]) == ["low"]


def test_special_tokens_are_parsed_only_on_request():
    tokenizer = BPETokenizer.train(["hello world"] * 3, vocab_size=270)
    for copied in (copy.copy(tokenizer), pickled(tokenizer), tokenizer):
        [plain] = copied.encode(["hello</s>"])
        [hello] = copied.encode(["hello"])
        assert copied.encode(["hello</s>"], parse_special_tokens=True) == [[*hello, 2]]
        assert copied.encode(["hello</s>"]) == [plain]
    number = tokenizer.vocab_size
    tokenizer.add_tokens([AddedToken("<|im_end|>", special=True)])
    assert tokenizer.encode(["<|im_end|>hello</s>"], parse_special_tokens=True) == [
        [number, *hello, 2]
    ]


def test_special_tokens_that_are_equal_after_normalization_are_not_parsed():
    tokenizer = WordPieceTokenizer.train(["low lower"] * 2, vocab_size=30)
    equal = [AddedToken(token, special=True, normalized=True) for token in ("[É]", "[e]")]
    assert tokenizer.add_tokens(equal) == 2 and tokenizer.encode(["low"]) != [[]]
    with pytest.raises(ValueError, match="'added_tokens' .*tokens that differ after normalizati"):
        tokenizer.encode(["low"], parse_special_tokens=True)
    with pytest.raises(ValueError, match="'added_tokens' .*tokens that differ after normalizati"):
        GraphWordPiece(tokenizer._file)


def test_a_special_token_stays_special_when_it_is_added_again():
    tokenizer = BPETokenizer.train(["hello world"] * 3, vocab_size=270)
    assert tokenizer.add_tokens(["</s>", AddedToken("<s>", special=False)]) == 0
    assert tokenizer.encode(["hello </s>"]) == [[266, 223, 30, 17, 85, 32]]
    assert pickled(tokenizer).end_id == 2


def test_tokens_that_cannot_be_added_are_refused():
    tokenizer = WordPieceTokenizer.train(["low lower"] * 2, vocab_size=30)
    size = tokenizer.vocab_size
    with pytest.raises(TypeError, match=r"tokens: .*use \[token\]"):
        tokenizer.add_tokens("[E1]")
    with pytest.raises(TypeError, match="tokens: expected strings or .*, got int"):
        tokenizer.add_tokens([3])
    for token in ("", "\x00", AddedToken("", normalized=False)):
        with pytest.raises(ValueError, match="tokens: expected tokens that are not empty"):
            tokenizer.add_tokens(["[E1]", token])
    assert tokenizer.vocab_size == size  # nothing of it


def test_a_trace_refuses_what_the_model_does_not_see():
    tokenizer = BPETokenizer.train(["hello world"] * 3, vocab_size=270)
    tokenizer.add_tokens(["[E1]", "world"])
    for text, token in (("hello [E1]", "[E1]"), ("hello world", "world")):
        with pytest.raises(ValueError, match=rf"text: .*added tokens.*got \['{re.escape(token)}'"):
            tokenizer.trace(text)
    assert tokenizer.trace("hello")[0]["ids"] == tokenizer.encode(["hello"])[0]
