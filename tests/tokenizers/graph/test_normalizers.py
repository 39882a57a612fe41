import itertools
import json

import pytest
import tensorflow as tf
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import (
    NFC,
    NFD,
    NFKC,
    NFKD,
    BertNormalizer,
    Lowercase,
    Nmt,
    Prepend,
    Replace,
    Sequence,
    Strip,
    StripAccents,
)
from unicode_texts import SEEDS, all_characters, random_texts

from tf_transformer.tokenizers.graph.texts import Texts
from tf_transformer.tokenizers.graph.words import Normalizer
from tf_transformer.tokenizers.pipeline import byte_level_pipeline, metaspace_pipeline
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart

pytestmark = pytest.mark.one_of(10, "texts")

BERT = [
    BertNormalizer(clean, chinese, accents, lower)
    for clean, chinese, accents, lower in itertools.product(
        (True, False), (True, False), (None, True, False), (True, False)
    )
]
OTHERS = [
    Lowercase(),
    NFC(),
    NFD(),
    NFKC(),
    NFKD(),
    Nmt(),
    Prepend("▁"),
    Replace("'s", "\\1 $0"),
    Strip(),
    Strip(left=False),
    Strip(right=False),
    Strip(left=False, right=False),
    StripAccents(),
    Sequence([]),
    Sequence([Nmt(), NFKC(), Replace("a", "\u0301"), Lowercase(), Strip(), Prepend(" ")]),
    Sequence([NFKD(), StripAccents(), Lowercase()]),
    Sequence([Lowercase(), NFD(), Sequence([NFC(), Strip()])]),
]


def part_of(normalizer):
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizer
    return json.loads(tokenizer.to_str())["normalizer"]


def check(normalizer, texts):
    change = Normalizer(part_of(normalizer))
    normalize = tf.function(
        lambda strings: change(Texts.of(strings)).strings,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    for start in range(0, len(texts), 1000):
        batch = texts[start : start + 1000]
        got = [text.decode("utf-8") for text in normalize(tf.constant(batch)).numpy()]
        for text, one in zip(batch, got, strict=True):
            assert one == normalizer.normalize_str(text), repr(text)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("normalizer", BERT + OTHERS, ids=str)
def test_random_texts_are_normalized_as_by_the_reference(normalizer, share_of):
    check(normalizer, SEEDS + share_of(random_texts(1000, seed=3)))


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "normalizer", [BERT[0], BERT[-1], *OTHERS[:6], OTHERS[8], OTHERS[12]], ids=str
)
def test_every_character_is_normalized_as_by_the_reference(normalizer, share_of):
    check(normalizer, all_characters("x") + share_of(all_characters("\u0301")))


@pytest.mark.parametrize("pipeline", [byte_level_pipeline(), metaspace_pipeline()])
def test_own_pipelines_are_normalized_as_by_the_reference(pipeline):
    settings = {"normalizer": pipeline.normalizer, "model": {"type": "BPE"}, "version": "1.0"}
    settings["model"] |= {"vocab": {}, "merges": []}
    check(Tokenizer.from_str(json.dumps(settings)).normalizer, SEEDS + random_texts(2000, seed=4))


@pytest.mark.parametrize("name", ["NFC", "NFKC", "NFD"])
@pytest.mark.one_of(6)
def test_long_runs_of_marks(name):
    marks = "\u0327\u0301\u0323\u093c\u3099\u0345" * 800
    check({"NFC": NFC(), "NFKC": NFKC(), "NFD": NFD()}[name], ["a" + marks, marks, marks + "か"])


def test_no_texts():
    normalize = Normalizer(part_of(NFKC()))
    assert normalize(Texts.of(tf.constant([], tf.string))).strings.shape == (0,)
    assert normalize(Texts.of(tf.constant(["", ""]))).strings.numpy().tolist() == [b"", b""]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            r"'normalizer.pattern'",
        ),
        ({"type": "Replace", "pattern": {"String": ""}, "content": " "}, r"'normalizer.pattern'"),
        (
            {"type": "Replace", "pattern": {"String": "a", "Regex": r"\s+"}, "content": " "},
            "'normalizer.pattern' is not supported: expected 'one String",
        ),
        ({"type": "Sequence", "normalizers": [{"type": "ByteLevel"}]}, "'ByteLevel'"),
    ],
)
def test_what_is_not_exact_is_refused(part, message):
    with pytest.raises(UnsupportedPart, match=message):
        Normalizer(part)
