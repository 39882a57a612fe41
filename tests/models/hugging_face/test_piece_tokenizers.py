"""Folders of ALBERT and Llama whose tokenizer is a model of SentencePiece alone."""

import dataclasses
import functools
import json
import shutil

import pytest
import tensorflow as tf
from loading import VECTORS, close
from tiny_bert import CONFIG, randomised

from tf_transformer import (
    TextClassifier,
    TextEncoder,
    TextGenerator,
    bert,
    generate,
    load,
    save_pretrained,
    with_vocab_size,
)
from tf_transformer.errors import ArgumentError
from tf_transformer.export.saving import load_saved_model
from tf_transformer.models.hugging_face.translation_tokenizers import decoder_tokenizer

pytestmark = pytest.mark.one_of(10, "published")

FOLDERS = VECTORS / "pieces"
KINDS = ("albert", "albert, cased", "llama", "llama, not legacy")


def read(path):
    return bert.read_tokenizer(path) if "albert" in path.name else decoder_tokenizer(path)


@pytest.fixture(scope="module")
def tokenizer_of():
    """A function: kind -> a tokenizer, which keeps what it has traced."""
    return functools.cache(lambda kind: read(FOLDERS / kind))


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers_4(tokenizer_of, kind):
    cases = json.loads((FOLDERS / kind / "cases.json").read_text())
    options = {"add_special_tokens": True, "parse_special_tokens": True}
    ids = tokenizer_of(kind).encode(cases["texts"], **options).to_list()
    for text, found, expected in zip(cases["texts"], ids, cases["ids"], strict=True):
        assert found == expected, repr(text)


def test_what_the_texts_have(tokenizer_of):
    albert, llama = tokenizer_of("albert"), tokenizer_of("llama")
    assert albert._file.model["splits"]["▁18,"] == ["▁1", "8", ","]
    added = [llama.special_tokens["<pad>"], llama.vocab_size - 1]
    cases = json.loads((FOLDERS / "llama" / "cases.json").read_text())
    assert all(sum(n in row for row in cases["ids"]) > 9 for n in added)


def test_special_tokens_in_a_text_are_plain_text(tokenizer_of):
    for kind, text in (("albert", "low [MASK] [SEP]"), ("llama", "low</s><s><pad>")):
        tokenizer = tokenizer_of(kind)
        [ids] = tokenizer.encode([text]).to_list()
        assert not {*ids} & {*tokenizer.special_tokens.values()} - {tokenizer.unknown_id}
        [ids] = tokenizer.encode(["low [E1]lower"]).to_list()
        assert (tokenizer.vocab_size - 1 in ids) == (kind == "llama")


def test_texts_of_ids(tokenizer_of):
    texts = ["low  new 好", " low ", "é 1,5"]
    for kind in ("llama", "llama, not legacy"):
        tokenizer = tokenizer_of(kind)
        ids = tokenizer.encode(texts, add_special_tokens=True)
        assert [text.decode() for text in tokenizer.decode(ids).numpy()] == texts
    tokenizer = tokenizer_of("albert")
    ids = tokenizer.encode(["LÖW, ``lower''"], add_special_tokens=True)
    assert tokenizer.decode(ids).numpy().tolist() == [b'low, "lower"']


@pytest.mark.slow
def test_a_llama_from_text_to_text(tmp_path):
    tokenizer, settings = decoder_tokenizer(FOLDERS / "llama"), {"max_new_tokens": 7}
    model = with_vocab_size(load(VECTORS / "text_generation" / "llama"), tokenizer.vocab_size)
    save_pretrained(model, tmp_path / "model", tokenizer_from=FOLDERS / "llama")
    content = json.dumps({"bos_token_id": 1, "eos_token_id": 2, **settings})
    (tmp_path / "model" / "generation_config.json").write_text(content)
    generator = TextGenerator.from_pretrained(tmp_path / "model")
    texts = tf.constant(["low new", " é", ""])
    ids = tokenizer.encode(texts, add_special_tokens=True)
    whole = tokenizer.decode(generate(model, ids, end_id=2, **settings))
    pairs = zip(texts.numpy(), whole.numpy(), strict=True)
    expected = [made.removeprefix(text) for text, made in pairs]
    assert generator.generate(texts).numpy().tolist() == expected
    generator.save(tmp_path / "saved")
    loaded = load_saved_model(tmp_path / "saved")
    assert loaded.generate(texts).numpy().tolist() == expected


@pytest.mark.slow
def test_an_albert_from_texts_to_labels(tokenizer_of, tmp_path):
    sizes = {"num_hidden_groups": 1, "embedding_size": 8, "labels": ("no", "yes")}
    tokenizer = tokenizer_of("albert")
    config = dataclasses.replace(CONFIG, vocab_size=tokenizer.vocab_size, **sizes)
    model = randomised(bert.BertForSequenceClassification(config))
    model.save_pretrained(tmp_path / "model", tokenizer_from=FOLDERS / "albert")
    texts = ["Low, new", "2,000 (é)", ""]
    classifier = TextClassifier.from_pretrained(tmp_path / "model")
    answer = classifier.classify(texts)
    logits = model(bert.text_inputs(tokenizer, texts, max_length=11))
    close(answer["probabilities"], tf.nn.softmax(logits))
    classifier.save(tmp_path / "saved")
    loaded = load_saved_model(tmp_path / "saved")
    close(loaded.classify(texts)["probabilities"], answer["probabilities"])
    encoder = TextEncoder.from_pretrained(tmp_path / "model")
    assert encoder.encode(texts).shape == (3, 12)


CHANGES = [
    ("albert", {"tokenizer_class": "T5Tokenizer"}, "tokenizer_class: expected 'AlbertTokenizer'"),
    ("albert", {"remove_space": False}, "remove_space: expected True"),
    ("albert", {"keep_accents": 1}, "keep_accents: expected true, false or null"),
    ("albert", {"mask_token": "<mask>"}, "mask_token: expected '.MASK.'"),
    ("albert", {"sp_model_kwargs": {"alpha": 0.1}}, "sp_model_kwargs: expected"),
    ("llama", {"tokenizer_class": "GemmaTokenizer"}, "tokenizer_class: expected 'LlamaTokenizer'"),
    ("llama", {"add_prefix_space": False}, "add_prefix_space: expected True"),
    ("llama", {"legacy": "yes"}, "legacy: expected true, false or null"),
    ("llama", {"never_seen": 1}, "never_seen: expected only known fields"),
    ("llama", {"added_tokens_decoder": {"300": "<pad>"}}, "added_tokens_decoder: expected an id"),
    ("llama", {"added_tokens_decoder": {}}, "no added tokens without a tokenizer.json.*<pad>"),
]


@pytest.mark.parametrize(("kind", "changes", "message"), CHANGES)
def test_settings_that_are_refused(tmp_path, kind, changes, message):
    folder = shutil.copytree(FOLDERS / kind, tmp_path / kind)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(ArgumentError, match=message):
        read(folder)


@pytest.mark.parametrize(("kind", "name"), [("mbart", "xlm-roberta"), ("mt5", "albert")])
def test_a_folder_of_another_model_is_not_taken_for_one_of_a_bert(tmp_path, kind, name):
    for path in (VECTORS / "text_to_text" / kind).iterdir():
        if path.suffix == ".model" or path.name == "config.json":
            shutil.copy(path, tmp_path)
    with pytest.raises(ArgumentError, match=f"model_type: expected one of {name}.*'{kind}'"):
        bert.read_tokenizer(tmp_path)
