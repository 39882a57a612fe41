"""The command `litert`, and the commands that run what it wrote."""

import json

import numpy as np
import pytest
from command_line import command, command_here
from tiny_bert import tiny_folder

pytestmark = pytest.mark.one_of(10, "long")

pytest.importorskip("ai_edge_litert")


def printed(*arguments, run=command_here, code=0, **options):
    done = run(*arguments, **options)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


@pytest.mark.slow
def test_a_translator(run, tmp_path):
    folder, _ = run
    output = tmp_path / "lite"
    said = printed("litert", folder, "--output", output, "--weights-dtype", "int8", run=command)
    assert "MiB, at most" in said and f"Model: {output}" in said
    printed("litert", folder, "--output", tmp_path / "exact")
    texts = ["I love you.", "Where is the station?"]
    exact = printed("translate", "--model", tmp_path / "exact", stdin="\n".join(texts).encode())
    assert exact == printed("translate", "--model", folder, stdin="\n".join(texts).encode())
    first = printed("translate", texts[0], "--model", tmp_path / "exact")
    assert first == exact.splitlines(keepends=True)[0]
    beam = ["translate", "a", "--model", output, "--beam"]
    assert "--model: expected a SavedModel for --beam" in printed(*beam, code=2)


def test_a_bert(tmp_path):
    folder = tiny_folder(tmp_path / "bert")
    examples = tmp_path / "texts.txt"
    examples.write_text("a good film\n\nthe plot was bad\n")
    lite = tmp_path / "lite"
    printed("litert", folder, "--output", lite, "--examples", examples)
    for model, name in ((folder, "a.npy"), (lite, "b.npy")):
        printed("embed", "--model", model, "--file", examples, "--output", tmp_path / name)
    one, other = (np.load(tmp_path / name) for name in ("a.npy", "b.npy"))
    np.testing.assert_allclose(one, other, atol=1e-5)
    found = printed("search", tmp_path / "b.npy", "a good film", "--model", lite, "--top", 1)
    assert found.startswith("1.0000\t1")


@pytest.mark.slow
def test_a_classifier(tmp_path):
    folder, run = tiny_folder(tmp_path / "bert"), tmp_path / "run"
    train = tmp_path / "train.tsv"
    words = ("good", "bad")
    train.write_text("".join(f"{words[n % 2]}\tfilm {n} {words[n % 2]}\n" for n in range(80)))
    files = ["--model", folder, "--train", train, "--output", run]
    printed("finetune", *files, "--epochs", 6, "--learning-rate", 5e-3, "--max-length", 9)
    printed("litert", run, "--output", tmp_path / "lite")
    answers = [
        printed("classify", "good film", "bad", "--model", model)
        for model in (run, tmp_path / "lite")
    ]
    assert answers[0] == answers[1]
    labels = json.loads((tmp_path / "lite" / "litert.json").read_text())["labels"]
    assert labels == ["bad", "good"]


def test_bad_input(tmp_path):
    folder = tiny_folder(tmp_path / "bert")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    to = ["--output", tmp_path / "lite"]
    assert "folder: expected a training run" in printed("litert", tmp_path, *to, code=2)
    said = printed("litert", folder, *to, "--examples", empty, code=2)
    assert "--examples: expected a text in" in said
    said = printed("litert", folder, *to, "--weights-dtype", "full int8", code=2)
    assert '--examples: expected texts for "full int8", got none' in said
    said = printed("litert", folder, "--output", folder, code=2)
    assert "bert" in said and "litert.json" in said
    config = json.loads((folder / "config.json").read_text())
    for name in ("BertForSequenceClassificationWithPabee", "BertForTokenClassification"):
        (folder / "config.json").write_text(json.dumps({**config, "architectures": [name]}))
        said = printed("litert", folder, *to, code=2)
        assert f"folder: expected a classifier or an encoder, got {name}" in said
    assert not (tmp_path / "lite").exists()
    (folder / "config.json").write_text(json.dumps(config))
    printed("litert", folder, *to)
    for command_ in ("classify", "translate"):
        said = printed(command_, "a", "--model", tmp_path / "lite", code=2)
        assert "got a text encoder for LiteRT" in said


@pytest.mark.slow
def test_texts_are_cut_and_lowercased_as_before(tmp_path):
    folder = tiny_folder(tmp_path / "bert")
    settings = {"max_seq_length": 6, "do_lower_case": True}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    texts = tmp_path / "texts.txt"
    texts.write_text("a good film was the plot unknown\nA GOOD film\n")
    printed("litert", folder, "--output", tmp_path / "lite")
    for model, name in ((folder, "a.npy"), (tmp_path / "lite", "b.npy")):
        printed("embed", "--model", model, "--file", texts, "--output", tmp_path / name)
    one, other = (np.load(tmp_path / name) for name in ("a.npy", "b.npy"))
    np.testing.assert_allclose(one, other, atol=1e-5)
