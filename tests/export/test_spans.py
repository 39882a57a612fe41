"""Answers and entities as in the pipelines of transformers, from strings."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import QuestionAnswerer, TokenClassifier, bert
from tf_transformer.errors import ArgumentError
from tf_transformer.export.saving import load_saved_model
from tf_transformer.tokenizers import GraphBPE, GraphWordPiece, TokenizerFile

pytestmark = pytest.mark.one_of(3, "core")

VECTORS = Path(__file__).parents[1] / "vectors" / "spans"
KINDS = ["bert", "roberta", "xlm_roberta"]
NAMES = {"max_seq_len": "max_length", "doc_stride": "stride", "max_answer_len": "max_answer_length"}
CHARACTERS = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
NAMES |= {"handle_impossible_answer": "null_answers", "align_to_words": "align_to_words"}


@pytest.fixture
def without_tracing():
    """Run every `tf.function` eagerly: tracing takes longer than small models."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@functools.cache
def loaded(kind, part):
    """The model and the tokenizer of a folder, and what the pipeline says."""
    folder = VECTORS / kind / part
    made = {"reader": bert.BertForQuestionAnswering, "tagger": bert.BertForTokenClassification}
    cases = json.loads((folder / "cases.json").read_text("utf-8"))
    return made[part].from_pretrained(folder), bert.read_tokenizer(folder), cases


def reader_of(kind, number, **options):
    """A `QuestionAnswerer` with the settings of a case, its questions and contexts, and answers."""
    model, tokenizer, cases = loaded(kind, "reader")
    settings, rows = cases[number]["settings"], cases[number]["answers"]
    settings = {NAMES[name]: value for name, value in settings.items()}
    texts = {name: tf.constant([row[name] for row in rows]) for name in ("question", "context")}
    return QuestionAnswerer(model, tokenizer, **settings, **options), texts, rows


def check_answers(found, rows):
    assert [text.decode() for text in found["answer"].numpy()] == [row["answer"] for row in rows]
    for name in ("start", "end"):
        assert found[name].numpy().tolist() == [row[name] for row in rows]
    np.testing.assert_allclose(found["score"], [row["score"] for row in rows], rtol=1e-4)


def tagger_of(kind, number, **options):
    """A `TokenClassifier` with the aggregation of a case, its texts, and their entities."""
    model, tokenizer, cases = loaded(kind, "tagger")
    made = TokenClassifier(
        model, tokenizer, 50, aggregation=cases[number]["aggregation"], **options
    )
    texts = cases[number]["texts"]
    return made, tf.constant(texts), [*zip(texts, cases[number]["entities"], strict=True)]


def check_entities(found, expected):
    found = {name: x.numpy() for name, x in found.items()}
    for row, (text, wanted) in enumerate(expected):
        size = len(wanted)
        assert not any(np.any(x[row, size:]) for x in found.values())
        for name in ("start", "end"):
            assert found[name][row, :size].tolist() == [entity[name] for entity in wanted]
        scores = [entity["score"] for entity in wanted]
        np.testing.assert_allclose(found["score"][row, :size], scores, rtol=1e-4)
        labels = [label.decode() for label in found["label"][row, :size]]
        assert labels == [entity["label"] for entity in wanted]
        words = [word.decode() for word in found["word"][row, :size]]
        assert words == [text[entity["start"] : entity["end"]] for entity in wanted]


@pytest.mark.one_of(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(3))
def test_answers_of_the_pipeline(without_tracing, kind, number):
    reader, texts, rows = reader_of(kind, number)
    check_answers(reader.answer(**texts), rows)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(3))
def test_several_answers_of_the_pipeline(without_tracing, kind, number):
    reader, texts, rows = reader_of(kind, number)
    best = json.loads((VECTORS / kind / "reader" / "best.json").read_text("utf-8"))
    best = best[number * len(rows) : (number + 1) * len(rows)]
    assert [row["context"] for row in best] == [row["context"] for row in rows]
    top_k = best[0]["top_k"]
    found = {name: x.numpy() for name, x in reader.answers(**texts, top_k=top_k).items()}
    assert {x.shape for x in found.values()} == {(len(rows), top_k)}
    for place, row in enumerate(best):
        size = len(row["answers"])
        check_answers(
            {name: tf.constant(x[place, :size]) for name, x in found.items()}, row["answers"]
        )
        assert not any(np.any(x[place, size:]) for x in found.values())


def test_equal_scores_keep_their_order(without_tracing):
    model, tokenizer, _ = loaded("bert", "reader")
    model = bert.BertForQuestionAnswering(model.config)  # all scores are equal: no kernels
    model.build()
    for weight in model.weights[-2:]:
        weight.assign(tf.zeros_like(weight))
    reader = QuestionAnswerer(model, tokenizer, max_answer_length=1)
    found = reader.answers(["what"], ["tom ann paris"], 4)
    assert found["answer"].numpy().tolist() == [[b"tom", b"ann", b"paris", b""]]
    assert len(set(found["score"][0, :3].numpy().tolist())) == 1


@pytest.mark.one_of(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(5))
def test_entities_of_the_pipeline(without_tracing, kind, number):
    tagger, texts, expected = tagger_of(kind, number)
    check_entities(tagger.tag(texts), expected)


@pytest.mark.slow
@pytest.mark.one_of(4)
@pytest.mark.parametrize("jit_compile", [False, True])  # True pads to buckets
def test_a_saved_reader(tmp_path, jit_compile):
    reader, texts, rows = reader_of("roberta", 1, jit_compile=jit_compile)
    reader.save(tmp_path / "model")
    assert not (tmp_path / "model" / "assets.extra").exists()  # warm-up data of texts alone
    calls = load_saved_model(tmp_path / "model").signatures
    check_answers(calls["serving_default"](**texts), rows)
    several = calls["answers"](**texts, top_k=tf.constant(3))
    assert {x.shape for x in several.values()} == {(len(rows), 3)}


@pytest.mark.slow
@pytest.mark.one_of(4)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_saved_tagger(tmp_path, jit_compile):
    tagger, texts, expected = tagger_of("bert", 3, jit_compile=jit_compile)
    tagger.save(tmp_path / "model")
    assert (tmp_path / "model" / "assets.extra").exists()
    call = load_saved_model(tmp_path / "model").signatures["serving_default"]
    check_entities(call(text=texts), expected)


def test_no_texts(without_tracing):
    model, tokenizer, _ = loaded("bert", "reader")
    found = QuestionAnswerer(model, tokenizer).answer(*[tf.constant([], tf.string)] * 2)
    assert [value.shape for value in found.values()] == [(0,)] * 4
    found = QuestionAnswerer(model, tokenizer).answers(*[tf.constant([], tf.string)] * 2, 3)
    assert [value.shape for value in found.values()] == [(0, 3)] * 4
    for top_k in (0, 1001):
        with pytest.raises(ArgumentError, match="top_k: expected 1 to 1000, got another number"):
            QuestionAnswerer(model, tokenizer).answers(["who"], ["Tom"], top_k)
    model, tokenizer, _ = loaded("bert", "tagger")
    tagger = TokenClassifier(model, tokenizer)
    for texts in (tf.constant([], tf.string), tf.constant([""])):
        assert {value.shape for value in tagger.tag(texts).values()} == {(len(texts), 0)}


def test_invalid_utf8_counts_as_replacement_characters(without_tracing):
    model, tokenizer, _ = loaded("bert", "reader")
    reader = QuestionAnswerer(model, tokenizer)
    broken, readable = b"\xff Tom \xe2\x82 is in \xc3", "\ufffd Tom \ufffd is in \ufffd"
    found, expected = (reader.answer(["who"], [text]) for text in (broken, readable))
    for name, value in expected.items():
        assert found[name].numpy().tolist() == value.numpy().tolist()


@pytest.mark.parametrize(
    ("question", "context", "message"),
    [
        (["who", " "], ["Tom", "Tom"], "question: expected from 1 to 16 tokens in each"),
        (["who " * 17], ["Tom"], "question: expected from 1 to 16 .* needs more than stride"),
        (["who"], ["\n"], "context: expected at least one token in each, got none"),
        (["who", "who"], ["Tom"], "context: expected one for each question, got another number"),
    ],
)
def test_texts_that_are_refused(without_tracing, question, context, message):
    model, tokenizer, _ = loaded("bert", "reader")
    reader = QuestionAnswerer(model, tokenizer, max_length=30, stride=10)
    with pytest.raises(ArgumentError, match=message):
        reader.answer(question, context)


def test_what_is_refused(without_tracing):
    model, tokenizer, _ = loaded("bert", "reader")
    tagger, _, _ = loaded("bert", "tagger")
    for made, wrong, name in (
        (QuestionAnswerer, tagger, "BertForQuestionAnswering"),
        (TokenClassifier, model, "BertForTokenClassification"),
    ):
        with pytest.raises(ArgumentError, match=f"model: expected a {name}, got BertFor"):
            made(wrong, tokenizer)
    for settings, message in (
        ({"stride": 26}, r"stride: expected an integer in \[0, 25\] for a max_length of 30"),
        ({"stride": -1}, "stride: expected an integer in"),
        ({"max_answer_length": 0}, "max_answer_length: expected an integer of at least 1"),
        ({"stride": 2.5}, "stride: expected an integer in"),
        ({"max_length": 61}, "max_length: expected at most 60"),
        ({"max_length": 0}, "max_length: expected at most 60 .*from 1, got 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            QuestionAnswerer(model, tokenizer, **{"max_length": 30, **settings})
    content = json.loads((VECTORS / "bert" / "reader" / "tokenizer.json").read_text("utf-8"))
    content["post_processor"]["pair"] = content["post_processor"]["pair"][1:]
    bare = GraphWordPiece(TokenizerFile.of(content))
    with pytest.raises(ArgumentError, match="aggregation: expected one of none, simple, first"):
        TokenClassifier(tagger, tokenizer, aggregation="mean")
    with pytest.raises(ArgumentError, match="tokenizer: expected one that adds a special token b"):
        QuestionAnswerer(model, bare)
    bpe = GraphBPE(TokenizerFile.of(CHARACTERS))
    for made, one in ((QuestionAnswerer, model), (TokenClassifier, tagger)):
        with pytest.raises(ArgumentError, match="'model' is not supported: expected 'for offsets"):
            made(one, bpe)
