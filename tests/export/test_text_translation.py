"""Published encoder-decoders as SavedModels from texts to texts: those of transformers."""

import functools
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from loading import VECTORS

from tf_transformer import (
    GraphTokenizer,
    TextGenerator,
    TranslationTokenizer,
    load,
    stream_text,
)
from tf_transformer.errors import ArgumentError
from tf_transformer.export.saving import load_saved_model

pytestmark = pytest.mark.one_of(10, "published")

FOLDERS = VECTORS / "text_to_text"
LANGUAGES = {
    "nllb": {"source_language": "eng_Latn", "target_language": "fra_Latn"},
    "m2m100": {"source_language": "__en__", "target_language": "__fr__"},
    "mbart": {"source_language": "en_XX", "target_language": "fr_XX"},
    "mbart50": {"source_language": "en_XX", "target_language": "fr_XX"},
}
KINDS = ("marian", "t5", "nllb", "m2m100", "mt5", "bart", "mbart", "mbart50")
RELOAD = """
import json, sys
import tensorflow as tf
texts = tf.constant(json.load(open(sys.argv[2], encoding="utf-8"))["texts"])
call = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
print(json.dumps([text.decode() for text in call(text=texts)["continuation"].numpy()]))
assert not {"tokenizers", "tf_transformer", "sentencepiece", "safetensors"} & set(sys.modules)
"""


def cases_of(kind):
    return json.loads((FOLDERS / kind / "cases.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def generator_of():
    """A function: kind, changes -> a generator, which keeps what it has traced."""

    @functools.cache
    def make(kind, **changes):
        return TextGenerator.from_pretrained(FOLDERS / kind, **LANGUAGES.get(kind, {}), **changes)

    return make


def texts_of(tensor):
    return [text.decode() for text in tensor.numpy()]


@pytest.mark.one_of(8)
@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_those_of_transformers(generator_of, kind):
    cases, generator = cases_of(kind), generator_of(kind)
    assert texts_of(generator.generate(cases["texts"])) == cases["greedy"]
    beams = generator_of(kind, num_beams=3)
    assert texts_of(beams.generate(cases["texts"])) == cases["beams"]


@pytest.mark.one_of(8)
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_the_text(generator_of, kind):
    generator, cases = generator_of(kind), cases_of(kind)
    _, text = max(zip(cases["greedy"], cases["texts"], strict=True), key=lambda pair: len(pair[0]))
    [whole] = texts_of(generator.generate([text]))
    assert "".join(stream_text(generator, text)) == whole
    how = {"seed": 3, "temperature": 1.5, "max_new_tokens": 7}
    [sample] = texts_of(generator.sample([text], **how))
    assert "".join(stream_text(generator, text, **how)) == sample != whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_needs_tensorflow_alone(generator_of, kind, tmp_path):
    generator_of(kind, num_beams=3).save(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", RELOAD, tmp_path / "model", FOLDERS / kind / "cases.json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == cases_of(kind)["beams"]


@pytest.mark.slow
def test_a_loaded_model_streams(generator_of, tmp_path):
    generator = generator_of("marian")
    generator.save(tmp_path / "model")
    loaded, text = load_saved_model(tmp_path / "model"), "low new"
    assert [*stream_text(loaded, text)] == [*generator.stream(text)]


def test_stop_strings(generator_of):
    generator = generator_of("marian")
    [whole] = texts_of(generator.generate(["low new"]))
    stop = whole[7:9]
    expected = [whole[: whole.index(stop)]]
    assert texts_of(generator.generate(["low new"], stop=[stop])) == expected


@pytest.mark.slow
def test_another_target_language():
    path = FOLDERS / "nllb"
    special = GraphTokenizer.from_file(path / "tokenizer.json").special_tokens
    for language in ("fra_Latn", "zho_Hans"):
        how = {"source_language": "eng_Latn", "target_language": language}
        generator = TextGenerator.from_pretrained(path, **how)
        assert generator._rules.token_rules["forced_first"] == special[language]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nllb", "mbart"])
def test_languages_of_each_text(generator_of, kind, tmp_path):
    own, texts = generator_of(kind), cases_of(kind)["texts"][:3]
    source, target = LANGUAGES[kind].values()
    reverse = {"source_language": target, "target_language": source}
    expected = texts_of(own.generate(texts))
    other = texts_of(TextGenerator.from_pretrained(FOLDERS / kind, **reverse).generate(texts))
    assert other != expected
    mixed = [expected[0], other[1], expected[2]]
    each = {"source_language": [source, target, source]}
    each["target_language"] = [target, source, target]
    generator = TextGenerator.from_pretrained(FOLDERS / kind)
    generator.save(tmp_path / "model")
    loaded = load_saved_model(tmp_path / "model")
    for one in (generator, loaded, own):
        assert texts_of(one.generate(texts, **each)) == mixed
        assert texts_of(one.generate(texts, **{k: [x] for k, x in reverse.items()})) == other
        assert "".join(stream_text(one, texts[1], **reverse)) == other[1]
    hot = {"seed": 3, "temperature": 1.5}
    samples = [texts_of(x.sample(texts, **hot, **y))[0] for x, y in ((own, {}), (loaded, each))]
    assert samples[0] == samples[1]
    searching = generator_of(kind, num_beams=3)
    beams, reverse = (
        texts_of(searching.generate(texts)),
        texts_of(searching.generate(texts, **each)),
    )
    assert beams == cases_of(kind)["beams"][:3] and reverse[::2] == beams[::2]
    for how, message in (
        ({}, "source_language: expected the language of the texts, such as .*, got none"),
        ({"source_language": ["en"]}, "source_language: expected languages of the model"),
        ({**each, "target_language": ["en"]}, "target_language: expected languages of the model"),
        ({"source_language": [source] * 2}, "source_language: expected one language, or one"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            loaded.generate(texts, **how)


def test_what_is_refused(generator_of):
    message = "text: expected at most 29 tokens"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        generator_of("marian").generate(["low " * 30])
    with pytest.raises(ArgumentError, match="tokenizer: expected a TranslationTokenizer, got Gra"):
        graph = GraphTokenizer.from_file(FOLDERS / "t5" / "tokenizer.json")
        TextGenerator(load(FOLDERS / "t5"), graph, end_id=1, start_id=0)
    tokenizer = TranslationTokenizer.from_pretrained(FOLDERS / "t5")
    with pytest.raises(ArgumentError, match="start_id: expected the id with which targets begin"):
        TextGenerator(load(FOLDERS / "t5"), tokenizer, end_id=1, beams={"beam_size": 2})
    gpt2 = VECTORS / "text_generation" / "gpt2"
    with pytest.raises(ArgumentError, match="target_language: expected None for a decoder"):
        TextGenerator.from_pretrained(gpt2, target_language="fra_Latn")


def test_blank_texts_and_batches(generator_of):
    generator = generator_of("marian")
    texts = ["low new", "", "wider", "newest lowest"]
    one_by_one = [texts_of(generator.generate([text]))[0] for text in texts]
    assert texts_of(generator.generate(texts)) == one_by_one
