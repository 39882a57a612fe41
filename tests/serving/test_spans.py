"""Answers and entities over HTTP, and the commands with such models."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from command_line import command_here
from fastapi.testclient import TestClient
from tiny_bert import CONFIG, TOKENS, randomised

from tf_transformer import EarlyExitClassifier, MaskFiller, TextClassifier, TextEncoder, bert
from tf_transformer.cli.arguments import model_path
from tf_transformer.export.spans import text_model_for
from tf_transformer.serving import Task, create_app

pytestmark = pytest.mark.one_of(10, "served")

VECTORS = Path(__file__).parents[1] / "vectors" / "spans" / "bert"


@pytest.fixture(autouse=True)
def without_tracing():
    """Run every `tf.function` eagerly: tracing takes longer than small models."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def cases(part, number):
    return json.loads((VECTORS / part / "cases.json").read_text("utf-8"))[number]


def test_answers():
    rows = cases("reader", 0)["answers"]
    short = [row for row in rows if len(row["context"]) < 40]  # one window here and there
    with TestClient(create_app(Task(VECTORS / "reader"))) as client:

        def post(questions, contexts):
            return client.post("/answer", json={"questions": questions, "contexts": contexts})

        questions, contexts = ([row[name] for row in short] for name in ("question", "context"))
        results = post(questions, contexts).json()["results"]
        for result, row in zip(results, short, strict=True):
            assert result.pop("score") == pytest.approx(row["score"], rel=1e-4)
            assert result == {name: row[name] for name in ("answer", "start", "end")}
        asked = {"questions": questions[:1], "contexts": contexts[:1]}
        both = [client.post("/answer", json={**asked, "top_k": n}).json() for n in (1, 3)]
        one, several = (result["results"][0]["answers"] for result in both)
        assert one[0].pop("score") == pytest.approx(short[0]["score"], rel=1e-4)
        assert one == results[:1]
        best = json.loads((VECTORS / "reader" / "best.json").read_text("utf-8"))
        [best] = [
            row for row in best[:15] if [[row["question"]], [row["context"]]] == [*asked.values()]
        ]
        assert [row["answer"] for row in several] == [row["answer"] for row in best["answers"]]
        assert client.post("/answer", json={**asked, "top_k": 0}).status_code == 422
        answer = post(["who", "what"], ["Tom"])
        assert answer.status_code == 400
        message = "questions, contexts: expected as many of both, got 2 and 1."
        assert answer.json() == {"error": message}
        answer = post(["who", " "], ["Tom", "Tom"])  # one that the model refuses
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("question: expected from 1 to")
        assert post(["who"], []).status_code == 422
        assert client.post("/answer", json={"texts": ["Tom"]}).status_code == 422


def test_entities():
    case = cases("tagger", 1)
    assert case["aggregation"] == "simple"
    chosen = [number for number, text in enumerate(case["texts"]) if len(text) < 40]
    with TestClient(create_app(Task(VECTORS / "tagger"))) as client:
        texts = [case["texts"][number] for number in chosen]
        results = client.post("/tag", json={"texts": texts}).json()["results"]
    for result, text, number in zip(results, texts, chosen, strict=True):
        expected = case["entities"][number]
        assert [one.pop("score") for one in result["entities"]] == pytest.approx(
            [one["score"] for one in expected], rel=1e-4
        )
        assert result["entities"] == [
            {"label": one["label"], "start": start, "end": end, "word": text[start:end]}
            for one in expected
            for start, end in [(one["start"], one["end"])]
        ]


def test_options_of_export_that_are_refused(tmp_path):
    for arguments in (["--beam-size", 2], ["--source-language", "en"], ["--weights-dtype", "int8"]):
        done = command_here("export", VECTORS / "tagger", "--output", tmp_path / "m", *arguments)
        message = f"{arguments[0]}: expected none with a published model"
        assert done.returncode == 2 and message in done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["reader", "tagger"])
def test_export(tmp_path, part):
    tf.config.run_functions_eagerly(False)
    done = command_here("export", VECTORS / part, "--output", tmp_path / "model")
    assert done.returncode == 0, done.stderr.decode()
    task = Task(tmp_path / "model")
    assert task.name == ("answer" if part == "reader" else "tag")
    [result] = task([("Where is Tom?", "Tom") if part == "reader" else "Tom"])
    assert result["answer"] == "Tom" if part == "reader" else result["entities"][0]["word"] == "Tom"


def published(made, tmp_path):
    """The folder of a small checkpoint of a class with its vocabulary."""
    model = randomised(made(dataclasses.replace(CONFIG, labels=("no", "yes"))))
    model.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS), "utf-8")
    return tmp_path


def test_a_checkpoint_with_classes(tmp_path):
    folder = published(bert.BertForSequenceClassification, tmp_path)
    texts = TOKENS[5:8]
    expected = TextClassifier.from_pretrained(folder).classify(texts)
    with TestClient(create_app(Task(folder))) as client:
        results = client.post("/classify", json={"texts": texts}).json()["results"]
    assert [row["label"].encode() for row in results] == expected["label"].numpy().tolist()
    printed = command_here("classify", *texts, "--model", folder).stdout.decode().splitlines()
    likeliest = tf.reduce_max(expected["probabilities"], 1).numpy()
    assert printed == [
        f"{row['label']}\t{probability:.4f}\t{text}"
        for row, probability, text in zip(results, likeliest, texts, strict=True)
    ]
    with pytest.raises(ValueError, match="source_language: expected a published translator"):
        Task(folder, source_language="en_XX")


def test_the_output_of_fine_tuning_is_served(tmp_path):
    (tmp_path / "saved_model").mkdir()
    assert model_path(tmp_path) == tmp_path / "saved_model"
    (tmp_path / "saved_model.pb").touch()
    assert model_path(tmp_path) == tmp_path


def test_a_checkpoint_with_exits(tmp_path):
    folder = published(bert.BertWithExits, tmp_path)
    answer = EarlyExitClassifier.from_pretrained(folder, entropy=2.0).classify(TOKENS[5:8])
    assert answer["layers"].numpy().tolist() == [1, 1, 1]


def test_a_checkpoint_without_a_head(tmp_path):
    folder = published(bert.Bert, tmp_path)
    expected = TextEncoder.from_pretrained(folder).encode(TOKENS[5:8])
    with TestClient(create_app(Task(folder))) as client:
        results = client.post("/embed", json={"texts": TOKENS[5:8]}).json()["results"]
    np.testing.assert_allclose([row["vector"] for row in results], expected, rtol=1e-6)


def test_a_checkpoint_for_masks(tmp_path):
    folder = published(bert.BertForMaskedLM, tmp_path)
    assert text_model_for(folder) is MaskFiller
    texts = [f"{TOKENS[5]} [MASK]", f"[MASK] {TOKENS[6]} {TOKENS[7]}"]
    expected = MaskFiller.from_pretrained(folder).fill(texts, 3)
    with TestClient(create_app(Task(folder))) as client:

        def post(texts, **options):
            return client.post("/fill", json={"texts": texts, **options})

        for row, result in enumerate(post(texts, top_k=3).json()["results"]):
            tokens = [one["token"].encode() for one in result["fillings"]]
            assert tokens == expected["tokens"][row].numpy().tolist()
            scores = [one["score"] for one in result["fillings"]]
            np.testing.assert_allclose(scores, expected["scores"][row], rtol=1e-6)
        assert [len(x["fillings"]) for x in post(texts).json()["results"]] == [5, 5]
        answer = post([texts[0], "Tom"])
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("text: expected one [MASK] in the first")
        assert post(texts, top_k=0).status_code == 422
        answer = post(texts, top_k=len(TOKENS) + 1)
        assert answer.json() == {
            "error": f"top_k: expected a number in [1, {len(TOKENS)}], got another."
        }
    task = Task(folder)
    rows = task([(texts[0], 1), (texts[1], 2)])  # of two requests, in one batch
    assert [len(row["fillings"]) for row in rows] == [1, 2]


def test_a_model_that_cannot_be_served(tmp_path):
    tf.saved_model.save(tf.Module(), tmp_path)
    with pytest.raises(ValueError, match="model: expected an exported translator, classifier"):
        Task(tmp_path)
