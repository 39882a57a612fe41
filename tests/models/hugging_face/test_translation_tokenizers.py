"""The ids of transformers' tokenizers for encoder-decoders, and their texts."""

import functools
import json
import shutil

import pytest
import tensorflow as tf
from loading import VECTORS

from tf_transformer import TranslationTokenizer, generate, generation_settings, load
from tf_transformer.errors import ArgumentError

FOLDERS = VECTORS / "text_to_text"
LANGUAGES = {"nllb": ("eng_Latn", "fra_Latn"), "m2m100": ("__en__", "__fr__")}
KINDS = ("marian", "t5", "nllb", "m2m100")


@pytest.fixture(scope="module")
def read():
    """A function: kind -> a tokenizer, which keeps what it has traced, and its cases."""

    @functools.cache
    def make(kind):
        tokenizer = TranslationTokenizer.from_pretrained(FOLDERS / kind, *LANGUAGES.get(kind, ()))
        return tokenizer, json.loads((FOLDERS / kind / "cases.json").read_text(encoding="utf-8"))

    return make


@pytest.mark.one_of(2)
@pytest.mark.parametrize("kind", KINDS)
def test_ids(read, kind):
    tokenizer, cases = read(kind)
    assert tokenizer.encode(cases["texts"]).to_list() == cases["ids"]
    if "targets" in cases:
        assert tokenizer.encode_targets(cases["targets"]).to_list() == cases["target_ids"]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "beams"), [("greedy", 1), ("beams", 3)])
def test_generated_texts(read, kind, name, beams):
    tokenizer, cases = read(kind)
    settings = generation_settings(FOLDERS / kind, num_beams=beams)
    ids = generate(load(FOLDERS / kind), tokenizer.encode(cases["texts"]), **settings)
    assert [text.decode() for text in tokenizer.decode(ids).numpy()] == cases[name]


def test_special_tokens_in_a_text_are_plain_text(read):
    tokenizer, _ = read("marian")
    [ids] = tokenizer.encode(["new</s><pad>"]).to_list()
    pad = tokenizer.source.pad_id
    assert ids.count(tokenizer.source.end_id) == 1 and ids[-1] == tokenizer.source.end_id
    assert pad not in ids
    [new] = tokenizer.encode(["new"]).to_list()
    assert tokenizer.decode([[pad, *new, pad]]).numpy()[0] == b"new"


def test_languages():
    tokenizer = TranslationTokenizer.from_pretrained(FOLDERS / "nllb", "zho_Hans")
    number = tokenizer.source.special_tokens["zho_Hans"]
    assert tokenizer.encode(["new"]).to_list()[0][0] == number
    with pytest.raises(ArgumentError, match="target_language: expected the language of the target"):
        tokenizer.encode_targets(["new"])
    for wrong in (None, "eng"):
        with pytest.raises(ArgumentError, match="source_language: expected one of eng_Latn, fra_"):
            TranslationTokenizer.from_pretrained(FOLDERS / "nllb", wrong)
    with pytest.raises(ArgumentError, match="None for a model whose texts carry no language"):
        TranslationTokenizer.from_pretrained(FOLDERS / "t5", target_language="fra_Latn")
    with pytest.raises(ArgumentError, match="begins with its code, as in >>fra<<"):
        TranslationTokenizer.from_pretrained(FOLDERS / "marian", "fra")


def test_codes_in_a_text_of_marian(read):
    tokenizer, _ = read("marian")
    ids = tokenizer.encode(["low", ">>fra<<low", ">>deu<< low", "low >>deu<<"]).to_list()
    codes = tokenizer.source._file.model["vocab"]
    assert ids[1] == [codes[">>fra<<"], *ids[0]] and ids[2] == [codes[">>deu<<"], *ids[0]]
    assert codes[">>deu<<"] not in ids[3]
    with pytest.raises(ArgumentError, match="language codes at the start of a text"):
        tokenizer.encode(["low", ">>ita<< low"])
    encode = tf.function(tokenizer.encode, input_signature=[tf.TensorSpec((None,), tf.string)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="language codes"):
        encode(tf.constant([">>ita<< low"]))


def test_folders_that_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="or source.spm"):
        TranslationTokenizer.from_pretrained(tmp_path)

    def refused(kind, file, text, message):
        folder = tmp_path / f"{kind} {file}"
        shutil.copytree(FOLDERS / kind, folder)
        (folder / file).write_text(text)
        with pytest.raises(ArgumentError, match=message):
            TranslationTokenizer.from_pretrained(folder, *LANGUAGES.get(kind, ()))

    refused("marian", "target_vocab.json", "{}", "one vocabulary for both sides")
    refused("marian", "vocab.json", '{"</s>": 0, "<unk>": 2}', "the ids from 0 on, each once")
    refused("marian", "target.spm", "", "normal pieces and one that is unknown")
    languages = '{"additional_special_tokens": ["fr"]}'
    refused("m2m100", "special_tokens_map.json", languages, r"languages in .*'fr'")
