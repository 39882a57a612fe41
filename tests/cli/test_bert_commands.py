"""The commands info, embed, search, finetune, classify and pretrain: output, files and errors."""

import io
import json
import shutil

import numpy as np
import pytest
from checkpoint_files import changed_config, write_tensorflow
from command_line import command, command_here
from tiny_bert import CONFIG, randomised, tiny_folder

from tf_transformer import bert
from tf_transformer.cli.bert import _SETTINGS
from tf_transformer.training import FineTuning

pytestmark = pytest.mark.one_of(10, "long")

LINES = "a good film\nthe plot was bad .\n\n好 电影\n"


def printed(*arguments, stdin=b"", code=0, run=command_here):
    """Run a command, check its exit code, and return its output or, after an error, stderr."""
    done = run(*arguments, stdin=stdin)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode("utf-8", "surrogateescape")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model") / "bert")


def test_info_of_bert_base():
    out = printed("info", "bert-base", run=command)
    assert "   23,835,648  embeddings" in out and "  109,482,240  all" in out


def test_info_of_a_checkpoint_and_of_nothing(folder, tmp_path):
    assert '"hidden_size": 12' in printed("info", folder)
    google = write_tensorflow(tmp_path / "google", bert.Bert.from_pretrained(folder))
    assert '"hidden_size": 12' in printed("info", google / "bert_model.ckpt")
    assert "name: expected one of bert-tiny" in printed("info", "bert-bass", code=2)


@pytest.mark.slow
def test_embed_and_search(folder, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text(LINES, "utf-8")
    piped = printed("embed", "--model", folder, stdin=LINES.encode(), run=command)
    vectors = np.load(io.BytesIO(piped.encode("utf-8", "surrogateescape")))
    assert vectors.shape == (4, 12) and vectors.dtype == np.float32
    index = tmp_path / "vectors.npy"
    printed("embed", "--model", folder, "--file", lines, "--output", index, "--batch-size", 2)
    np.testing.assert_allclose(np.load(index), vectors, atol=1e-6)
    texts = LINES.splitlines()
    printed("embed", *texts, "--model", folder, "--output", tmp_path / "texts.npy")
    np.testing.assert_allclose(np.load(tmp_path / "texts.npy"), vectors, atol=1e-6)
    both = printed("embed", *texts, "--model", folder, "--file", lines, code=2)
    assert "text, --file: expected one of them, got both" in both
    out = printed("search", index, "好 电影", "--model", folder, "--lines", lines, "--top", 2)
    first, second = out.splitlines()
    assert first == "1.0000\t4\t好 电影" and second.count("\t") == 2
    again = printed("search", index, "a", "bad", "--model", folder)
    assert again.startswith("a:\n")


def test_bad_input(folder, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("one line\n")
    index, narrow = tmp_path / "vectors.npy", tmp_path / "narrow.npy"
    np.save(index, np.zeros((4, 12), np.float32))
    np.save(narrow, np.zeros((4, 5), np.float32))
    flat, few = tmp_path / "flat.npy", tmp_path / "few.tsv"
    np.save(flat, np.float32(1))
    few.write_text("good\tone\nbad\tother\n")
    wordless = shutil.copytree(folder, tmp_path / "wordless")
    (wordless / "vocab.txt").unlink()
    for arguments, message in (
        (["embed", "--model", tmp_path / "none"], "expected a local folder"),
        (["embed", "--model", wordless], f"{wordless}: expected tokenizer.json, vocab.txt, s"),
        (
            [
                "finetune",
                "--model",
                folder,
                "--output",
                tmp_path / "x",
                "--train",
                tmp_path / "none",
            ],
            "--train: expected a file of class, tab, text, got no file",
        ),
        (["embed", "--model", folder, "--file", tmp_path / "none"], "--file: expected a text file"),
        (
            ["embed", "--model", folder, "--output", tmp_path],
            "expected a new or existing file, got",
        ),
        (["search", tmp_path / "none", "a", "--model", folder], "index: expected a file"),
        (["search", lines, "a", "--model", folder], "index: expected an .npy file from `embed`"),
        (["search", narrow, "a", "--model", folder], "index: expected vectors of width 12"),
        (
            ["search", index, "a", "--model", folder, "--lines", lines],
            "--lines: expected the 4 lines",
        ),
        (
            ["search", flat, "a", "--model", folder, "--lines", lines],
            "index: expected an .npy file",
        ),
        (
            ["finetune", "--model", folder, "--output", tmp_path / "x", "--train", few],
            "train: expected enough different texts",
        ),
        (
            ["pretrain", "--start", folder, "--vocab-size", 9, "--output", tmp_path / "x"],
            "--vocab-size: expected none with --start",
        ),
        (["finetune", "--model", folder, "--output", tmp_path / "x"], "--train, --data: expected"),
        (
            ["finetune", "--model", folder, "--output", tmp_path, "--train", lines],
            "--output: expected a new folder",
        ),
        (
            ["finetune", "--model", folder, "--output", tmp_path / "x", "--early-exit", -1],
            "--early-exit: expected 0 to 100 percent, got -1.0",
        ),
        (
            ["finetune", "--model", folder, "--output", tmp_path / "x", "--early-exit", 101],
            "--early-exit: expected 0 to 100 percent, got 101.0",
        ),
        (["classify", "a", "--model", tmp_path], "--model: expected the output of finetune"),
    ):
        assert message in printed(*arguments, code=2), arguments


@pytest.mark.slow
def test_finetune_and_classify(folder, tmp_path):
    train, output = tmp_path / "train.tsv", tmp_path / "run"
    folder = shutil.copytree(folder, tmp_path / "start")
    changed_config(folder, problem_type="multi_label_classification")  # of the head that goes
    words = ("good", "bad")
    train.write_text("".join(f"{words[n % 2]}\tfilm {n} {words[n % 2]}\n" for n in range(80)))
    settings = ["--epochs", 8, "--learning-rate", 5e-3, "--max-length", 9, "--batch-size", 8]
    files = ["--model", folder, "--train", train, "--output", output]
    out = printed("finetune", *files, *settings, run=command)
    assert "classes: bad, good" in out
    result = json.loads((output / "result.json").read_text())
    assert result["test_accuracy"] == 1.0 and result["settings"]["epochs"] == 8
    assert "problem_type" not in (output / "model" / "config.json").read_text()
    assert {"vocab.txt", "model.safetensors"} <= {p.name for p in (output / "model").iterdir()}
    assert len((output / "history.csv").read_text().splitlines()) == 9
    answers = printed("classify", "good", "bad", "--model", output).splitlines()
    assert [answer.split("\t")[::2] for answer in answers] == [["good"] * 2, ["bad"] * 2]
    early = ["--early-exit", 0.5, "--output", tmp_path / "early"]
    printed("finetune", *files[:4], *early, *settings, "--epochs", 16)
    report = json.loads((tmp_path / "early" / "result.json").read_text())["early_exit"]
    assert report["test_accuracy"] == 1.0 and report["layers"] < 2
    answers_early = printed("classify", "good", "bad", "--model", tmp_path / "early").splitlines()
    assert [answer.split("\t")[::2] for answer in answers_early] == [["good"] * 2, ["bad"] * 2]
    saved_model = ["--model", output / "saved_model"]
    piped = printed("classify", *saved_model, stdin=b"good\nbad\n")
    assert piped.splitlines() == answers
    vectors = printed("embed", *saved_model, stdin=b"good\n", code=2)
    assert "a SavedModel from TextEncoder" in vectors


@pytest.mark.slow
def test_train_pairs_and_search_an_index(folder, tmp_path):
    words = ("good", "bad", "film", "plot", "the", "was")
    texts = [f"{a} {b} {c}" for a in words for b in words for c in words if len({a, b, c}) == 3]
    train, output, index = tmp_path / "pairs.tsv", tmp_path / "run", tmp_path / "index"
    train.write_text("".join(f"{text}\t{text.split()[-1]} {text}\n" for text in texts))
    settings = ["--epochs", 3, "--max-length", 9, "--hard-negatives", 2, "--learning-rate", 3e-3]
    settings += ["--batch-size", 8]
    printed("train-pairs", "--model", folder, "--train", train, "--output", output, *settings)
    scores = json.loads((output / "result.json").read_text())["scores"]
    assert scores["after"]["mrr"] > scores["before"]["mrr"] > 0.2
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(texts))
    model = ["--model", output / "saved_model"]
    printed("embed", *model, "--file", lines, "--index", index, "--vectors-dtype", "float32")
    found = printed("search", index, texts[7], *model, "--lines", lines, "--top", 1)
    score, number, text = found.rstrip("\n").split("\t")
    assert score == "1.0000" and texts[int(number) - 1] == text
    stranger = tiny_folder(tmp_path / "stranger")
    randomised(bert.Bert(CONFIG), seed=99).save_pretrained(stranger)
    other = printed("search", index, texts[7], "--model", stranger, code=2)
    assert "index: expected one that this model made" in other
    again = printed("train-pairs", "--model", folder, "--train", train, "--output", output, code=2)
    assert "--output: expected a new folder" in again
    lone = tmp_path / "lone.tsv"
    lone.write_text("one column\n")
    to = ["--model", folder, "--output", tmp_path / "none"]
    assert "--train: expected at least 2 columns" in printed(
        "train-pairs", "--train", lone, *to, code=2
    )
    assert "--temperature: expected a number above 0" in printed(
        "train-pairs", "--train", train, *to, "--temperature", 0, code=2
    )
    few = printed("train-pairs", "--train", train, *to, "--hard-negatives", 999, code=2)
    assert "--train: expected at least 1001 different documents" in few
    assert not (tmp_path / "none").exists()
    alone = printed("embed", *model, "--vectors-dtype", "int8", code=2)
    assert "--vectors-dtype: expected --index as well" in alone
    none = printed("search", tmp_path, "a", *model, code=2)
    assert "index: expected a folder with vector_index.json" in none


@pytest.mark.slow
def test_pretrain(tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "run"
    documents = [[f"the film {n} was good", f"the plot {n} was bad"] for n in range(120)]
    text.write_text("\n\n".join("\n".join(document) for document in documents))
    arguments = ["--text", text, "--preset", "tiny", "--vocab-size", 90, "--output", output]
    out = printed("pretrain", *arguments, run=command)
    assert "masked words and next sentences" in out and "loss.png" in out
    assert (output / "loss.png").read_bytes()[1:4] == b"PNG"
    assert "contains a training run. Resume it: tf-transformer pretrain" in printed(
        "pretrain", *arguments, code=2
    )
    vectors = printed("embed", "--model", output / "model", "--output", tmp_path / "x.npy")
    assert vectors == "" and np.load(tmp_path / "x.npy").shape == (0, 32)
    told = printed("pretrain", "--resume", output, "--learning-rate", 0, code=2)
    assert "--learning-rate: expected no setting with --resume" in told
    # The training is complete: resuming only reports the model.
    again = printed("pretrain", "--resume", output)
    assert "Model: " in again


def test_the_defaults_of_help_are_those_of_the_settings():
    settings = vars(FineTuning())
    assert {name: default for name, (default, _) in _SETTINGS.items()}.items() <= settings.items()


@pytest.mark.slow
def test_the_activation_of_the_pooler(folder, tmp_path):
    vectors = {}
    for activation in ("tanh", "linear"):
        arguments = ["--pooling", "pooler", "--pooler-activation", activation]
        output = tmp_path / f"{activation}.npy"
        arguments += ["--model", folder, "--output", output]
        printed("embed", *arguments, stdin=LINES.encode())
        vectors[activation] = np.load(output)
    assert np.abs(vectors["tanh"] - vectors["linear"]).max() > 1e-3


def test_compress(tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text('{"model": "tuned", "steps": [{"step": "prun", "heads": 0.5}]}')
    message = printed("compress", recipe, "--output", tmp_path / "smaller", code=2)
    assert "steps[0]: expected one of distil, prune, quantize, got 'prun'" in message
    recipe.write_text('{"model": "tuned", "steps": [{"step": "prune", "heads": 0.5}]}')
    message = printed("compress", recipe, "--output", tmp_path / "smaller", code=2)
    assert f"model: expected the output of finetune or a training run, got {tmp_path}" in message
    assert not (tmp_path / "smaller").exists()
