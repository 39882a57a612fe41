import itertools
import json
import random

import pytest
import tensorflow as tf
from tokenizer_files import WORDS
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    Digits,
    Metaspace,
    Punctuation,
    Sequence,
    Split,
    Whitespace,
    WhitespaceSplit,
)
from unicode_texts import SEEDS, all_characters, is_read, random_texts

from tf_transformer.tokenizers.graph.texts import Texts
from tf_transformer.tokenizers.graph.words import build_pre_tokenizer
from tf_transformer.tokenizers.pipeline import WORD_PATTERN, byte_alphabet
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart

pytestmark = pytest.mark.one_of(10, "texts")

SPLITTERS = [
    BertPreTokenizer(),
    Digits(individual_digits=False),
    Digits(individual_digits=True),
    Metaspace(),
    Metaspace(prepend_scheme="never"),
    Metaspace(prepend_scheme="always", split=False),
    Metaspace(replacement="_", prepend_scheme="first"),
    Metaspace(replacement="\\"),
    Punctuation(),
    Sequence([]),
    Sequence([WhitespaceSplit(), Metaspace()]),
    Sequence([Whitespace(), Digits(individual_digits=True)]),
    Sequence([Punctuation(), Split("a", "removed")]),
    Split(" ", "isolated"),
    Split(" ", "removed"),
    Split(".*", "isolated"),
    Split(Regex(WORD_PATTERN), "isolated"),
    Split(Regex(" {2,}"), "removed"),
    *(Split(Regex(words), "isolated") for words in WORDS.values()),
    *(Split(Regex(words), "removed", invert=True) for words in WORDS.values()),
    Whitespace(),
    WhitespaceSplit(),
]
BYTE_LEVELS = [
    ByteLevel(add_prefix_space=prefix, use_regex=regex)
    for prefix in (True, False)
    for regex in (True, False)
]

LETTERS = byte_alphabet()


def part_of(splitter):
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = splitter
    return json.loads(tokenizer.to_str())["pre_tokenizer"]


def words_of(splitter, text):
    return [word for word, _ in splitter.pre_tokenize_str(text) if word]


def check(splitter, texts, write=lambda word: word.decode("utf-8")):
    cut = build_pre_tokenizer(part_of(splitter), is_start_kept=True)
    split = tf.function(
        lambda strings: cut(Texts.of(strings)),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    for start in range(0, len(texts), 1000):
        batch = texts[start : start + 1000]
        for text, words in zip(batch, split(tf.constant(batch)).to_list(), strict=True):
            assert [write(word) for word in words] == words_of(splitter, text), repr(text)


def in_letters(word):
    return "".join(LETTERS[byte] for byte in word)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("splitter", SPLITTERS, ids=str)
def test_texts_are_cut_as_by_the_reference(splitter):
    check(splitter, SEEDS + random_texts(2000, seed=5))


@pytest.mark.parametrize("splitter", BYTE_LEVELS, ids=str)
def test_byte_level_texts_are_cut_as_by_the_reference(splitter):
    check(splitter, SEEDS + random_texts(2000, seed=6), in_letters)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("separator", ["x", "1", " ", "'"])
def test_characters_of_all_planes_are_cut_as_by_the_reference(separator):
    # test_unicode_tables.py checks every character; splitting them all takes the reference minutes.
    texts = all_characters(separator)
    texts = texts[:100] + texts[100::20]
    for splitter in (BertPreTokenizer(), Whitespace(), Digits(), WhitespaceSplit()):
        check(splitter, texts)
    check(ByteLevel(add_prefix_space=False), texts, in_letters)
    for words in WORDS.values():
        check(Split(Regex(words), "isolated"), texts)


@pytest.fixture(params=WORDS)
def words(request):
    return Split(Regex(WORDS[request.param]), "isolated")


def test_every_short_text_of_the_characters_that_matter_to_words(words):
    texts = [
        "".join(drawn) for n in range(5) for drawn in itertools.product("'sL1! \n\t", repeat=n)
    ]
    check(words, texts)


@pytest.mark.one_of(6)
def test_long_texts_of_the_characters_that_matter_to_words(words, share_of):
    draw = random.Random(8)
    characters = "'sStTlLvVrReEdDmM\u017f\u212a1½\u0661!?\u0301 \t\r\n\x85\u2028\u3000字😀"
    texts = ["".join(draw.choices(characters, k=draw.randrange(40))) for _ in range(20_000)]
    check(words, share_of(texts))


@pytest.mark.one_of(6)
def test_every_character_as_an_ending(words):
    # Ignoring case, a regular expression may match more than the two spellings of a letter.
    points = filter(is_read, map(chr, range(0x110000)))
    characters = [c for c in points if c.isalpha() and (c.casefold() != c or ord(c) < 0x3000)]
    forms = ["'{}", "'{}l", "'l{}", "'r{}", "'v{}", "'{}e"]
    check(words, ["!".join(form.format(c) for form in forms) for c in characters])


def test_runs_of_5000(words):
    runs = ["a", "1", "!", " ", "\n", "\t", "'", " \n", "!\n", "'s", "a ", "1a", "'L", "\n!"]
    check(words, [run * 5000 for run in runs])


def test_a_file_may_contain_newlines_instead_of_escapes():
    pattern = WORDS["Qwen2"].replace(r"\r", "\r").replace(r"\n", "\n")
    check(Split(Regex(pattern), "isolated"), ["a\r\n b!\n\r c\\n"])


def test_no_texts():
    for splitter in (*SPLITTERS, *BYTE_LEVELS):
        split = build_pre_tokenizer(part_of(splitter), is_start_kept=True)
        assert split(Texts.of(tf.constant([], tf.string))).to_list() == []
        assert split(Texts.of(tf.constant(["", ""]))).to_list() == [[], []]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "UnicodeScripts"}, "'pre_tokenizer'.*'UnicodeScripts'"),
        (part_of(Split(Regex(r"\s+"), "isolated")), r"'pre_tokenizer.pattern'"),
        (part_of(Split(Regex(WORDS["Qwen2"] + "|a"), "isolated")), r"'pre_tokenizer.pattern'"),
        (part_of(Split(Regex(WORDS["Qwen2"]), "removed")), r"'pre_tokenizer.behavior'"),
        (part_of(Split("a", "merged_with_next")), "'pre_tokenizer.behavior'"),
        (part_of(Split("a", "isolated", invert=True)), "'pre_tokenizer.behavior'"),
        (part_of(Metaspace(prepend_scheme="first")), "'pre_tokenizer.prepend_scheme'"),
        # The reference rejects it too.
        (
            {"type": "Metaspace", "replacement": "_", "add_prefix_space": False},
            "'pre_tokenizer.prepend_scheme'",
        ),
        (part_of(Punctuation("removed")), "'pre_tokenizer.behavior'"),
    ],
)
def test_what_is_not_exact_is_refused(part, message):
    with pytest.raises(UnsupportedPart, match=message):
        build_pre_tokenizer(part)
