"""The ids of transformers' tokenizers for encoder-decoders, and their texts."""

import functools
import json
import shutil

import pytest
import tensorflow as tf
from loading import VECTORS

from tf_transformer import (
    TranslationTokenizer,
    generate,
    generation_settings,
    load,
    save_pretrained,
)
from tf_transformer.errors import ArgumentError

pytestmark = pytest.mark.one_of(10, "published")

FOLDERS = VECTORS / "text_to_text"
LANGUAGES = {"nllb": ("eng_Latn", "fra_Latn"), "m2m100": ("__en__", "__fr__")}
LANGUAGES |= dict.fromkeys(("mbart", "mbart50"), ("en_XX", "fr_XX"))
KINDS = ("marian", "t5", "nllb", "m2m100", "mt5", "bart", "mbart", "mbart50")


@pytest.fixture(scope="module")
def read():
    """A function: kind -> a tokenizer, which keeps what it has traced, and its cases."""

    @functools.cache
    def make(kind):
        tokenizer = TranslationTokenizer.from_pretrained(FOLDERS / kind, *LANGUAGES.get(kind, ()))
        return tokenizer, json.loads((FOLDERS / kind / "cases.json").read_text(encoding="utf-8"))

    return make


@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", KINDS)
def test_ids(read, kind):
    tokenizer, cases = read(kind)
    assert tokenizer.encode(cases["texts"]).to_list() == cases["ids"]
    if "targets" in cases:
        assert tokenizer.encode_targets(cases["targets"]).to_list() == cases["target_ids"]


@pytest.mark.one_of(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "beams"), [("greedy", 1), ("beams", 3)])
def test_generated_texts(read, kind, name, beams):
    tokenizer, cases = read(kind)
    settings = generation_settings(FOLDERS / kind, num_beams=beams)
    ids = generate(load(FOLDERS / kind), tokenizer.encode(cases["texts"]), **settings)
    assert [text.decode() for text in tokenizer.decode(ids).numpy()] == cases[name]


def test_m2m100_has_the_languages_of_transformers(read):
    tokenizer, cases = read("m2m100")
    path, given = FOLDERS / "m2m100", ("en", "fr")
    assert tokenizer.encode(cases["texts"], "en").to_list() == cases["ids"]
    assert TranslationTokenizer.from_pretrained(path, *given).first_tokens == tokenizer.first_tokens
    assert tokenizer.languages[:2] == ("af", "am")
    with pytest.raises(ValueError, match="such as af, am, ar, got another. It is"):
        tokenizer.encode(cases["texts"], "eng")


def test_special_tokens_in_a_text_are_plain_text(read):
    tokenizer, _ = read("marian")
    [ids] = tokenizer.encode(["new</s><pad>"]).to_list()
    pad = tokenizer.source.pad_id
    assert ids.count(tokenizer.source.end_id) == 1 and ids[-1] == tokenizer.source.end_id
    assert pad not in ids
    [new] = tokenizer.encode(["new"]).to_list()
    assert tokenizer.decode([[pad, *new, pad]]).numpy()[0] == b"new"


def test_tokens_for_masked_spans_of_t5(read, tmp_path):
    tokenizer = read("mt5")[0].source
    size = tokenizer.vocab_size
    found = [tokenizer.special_tokens[f"<extra_id_{n}>"] for n in (0, 1, 99)]
    assert found == [size - 1, size - 2, size - 100]
    [ids] = tokenizer.encode(["low <extra_id_1>"], parse_special_tokens=True).to_list()
    assert ids[-1] == size - 2
    shutil.copy(FOLDERS / "mt5" / "spiece.model", tmp_path)
    for count, expected in ((0, size - 100), (7, size - 93)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": count}))
        assert TranslationTokenizer.from_pretrained(tmp_path).vocab_size == expected
    (tmp_path / "tokenizer_config.json").write_text('{"extra_ids": -1}')
    with pytest.raises(ArgumentError, match="extra_ids: expected a whole number, at least 0"):
        TranslationTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_keeps_its_tokenizer(tmp_path, kind):
    save_pretrained(load(FOLDERS / kind), tmp_path / "model", tokenizer_from=FOLDERS / kind)
    languages = LANGUAGES.get(kind, ())
    there, here = (
        TranslationTokenizer.from_pretrained(path, *languages)
        for path in (FOLDERS / kind, tmp_path / "model")
    )
    assert here.source._file.content == there.source._file.content
    assert here.target._file.content == there.target._file.content


def test_languages():
    tokenizer = TranslationTokenizer.from_pretrained(FOLDERS / "nllb", "zho_Hans")
    number = tokenizer.source.special_tokens["zho_Hans"]
    assert tokenizer.encode(["new"]).to_list()[0][0] == number
    with pytest.raises(ArgumentError, match="target_language: expected the language of the texts"):
        tokenizer.encode_targets(["new"])
    with pytest.raises(ArgumentError, match="source_language: expected one of eng_Latn, fra_"):
        TranslationTokenizer.from_pretrained(FOLDERS / "nllb", "eng")
    with pytest.raises(ArgumentError, match="None for a model whose texts carry no language"):
        TranslationTokenizer.from_pretrained(FOLDERS / "t5", target_language="fra_Latn")
    with pytest.raises(ArgumentError, match="begins with its code, as in >>fra<<"):
        TranslationTokenizer.from_pretrained(FOLDERS / "marian", "fra")


@pytest.mark.parametrize("kind", LANGUAGES)
def test_languages_of_a_call(read, kind):
    own, cases = read(kind)
    tokenizer, (source, target) = (
        TranslationTokenizer.from_pretrained(FOLDERS / kind),
        LANGUAGES[kind],
    )
    texts = cases["texts"]
    assert tokenizer.encode(texts, source).to_list() == own.encode(texts).to_list()
    expected = own.encode_targets(texts).to_list()
    assert tokenizer.encode_targets(texts, [target]).to_list() == expected
    several = [target, source, target]
    for encode in (tokenizer.encode, tokenizer.encode_targets, own.encode):
        rows = encode(texts[:3], several).to_list()
        assert rows == [encode([x], y).to_list()[0] for x, y in zip(texts, several, strict=False)]
        assert rows[0] != rows[1][: len(rows[0])] and own.encode(texts[:3], target) is not None
    for wrong, message in (
        (None, "source_language: expected the language of the texts, such as .*, got none"),
        ("eng", "source_language: expected languages of the model, such as .*, got another"),
        ([source] * 2, "source_language: expected one language, or one for each text, got another"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tokenizer.encode(texts[:3], wrong)
    with pytest.raises(ArgumentError, match="source_language: expected None for a model whose te"):
        read("t5")[0].encode(texts, source)
    with pytest.raises(ArgumentError, match="source_language: expected None for a model whose te"):
        read("marian")[0].encode(texts, source)


@pytest.mark.parametrize(
    ("kind", "field"),
    [("mbart", "decoder_start_token_id"), ("mbart50", "forced_bos_token_id")],
)
def test_targets_and_their_first_token(read, kind, field):
    tokenizer, cases = read(kind)
    english, french = (tokenizer.source.special_tokens[code] for code in LANGUAGES[kind])
    expected = [[french if n == english else n for n in row] for row in cases["ids"]]
    assert tokenizer.encode_targets(cases["texts"]).to_list() == expected
    assert tokenizer.first_tokens == {field: french}


def test_a_language_after_the_text_is_no_start_of_nllb(tmp_path):
    folder = shutil.copytree(FOLDERS / "nllb", tmp_path / "nllb")
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    content["post_processor"]["single"].append(content["post_processor"]["single"].pop(0))
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    tokenizer = TranslationTokenizer.from_pretrained(folder, "eng_Latn", "fra_Latn")
    english, french = (tokenizer.source.special_tokens[code] for code in LANGUAGES["nllb"])
    assert tokenizer.encode(["new"]).to_list()[0][-2:] == [2, english]
    assert tokenizer.first_tokens == {"forced_bos_token_id": french}


@pytest.mark.parametrize("kind", ["marian", "m2m100", "mt5", "mbart"])
def test_added_tokens_are_refused(tmp_path, kind):
    folder = shutil.copytree(FOLDERS / kind, tmp_path / kind)
    (folder / "added_tokens.json").write_text('{"newest": 999}')
    with pytest.raises(ArgumentError, match="no added tokens without a tokenizer.json.*newest"):
        TranslationTokenizer.from_pretrained(folder, *LANGUAGES.get(kind, ()))


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
    with pytest.raises(FileNotFoundError, match="source.spm, spiece.model or sent.*got none"):
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
    config = json.loads((FOLDERS / "mbart" / "config.json").read_text())
    config["vocab_size"] += 1
    message = "vocab_size: expected 59 or 86 in .*got 60"
    refused("mbart", "config.json", json.dumps(config), message)
    languages = '{"additional_special_tokens": ["fr"]}'
    refused("m2m100", "special_tokens_map.json", languages, r"languages in .*'fr'")
