"""The commands prepare and train --prepared."""

import json

import pytest
from command_line import command, command_here

from tf_transformer.data import PreparedPairs
from tf_transformer.training import TrainingRun

pytestmark = pytest.mark.one_of(10, "long")


@pytest.fixture(scope="module")
def prepared(pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "pairs"
    done = command(
        *("prepare", "--tsv", pairs, "--vocab-size", "300", "--workers", "2", "--output", folder)
    )
    assert done.returncode == 0, done.stderr.decode()
    return folder, done


def test_prepare_says_what_there_is_and_what_comes_next(prepared):
    folder, done = prepared
    assert done.stderr == b""
    pairs = PreparedPairs(folder)
    assert done.stdout.decode() == (
        f"{len(pairs)} pairs in 1 shards, 6 for validation, 6 for the test\n"
        f"Train with: tf-transformer train --prepared {folder}\n"
    )


def test_an_interrupted_prepare_says_how_to_resume(pairs, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tf_transformer.data.prepare_pairs", interrupted)
    done = command_here("prepare", "--tsv", pairs, "--output", tmp_path / "pairs")
    assert done.returncode == 130
    assert b"Finished parts are kept. Run the same command again to resume." in done.stderr


def test_a_run_on_shards_trains_resumes_and_is_described(prepared, tmp_path):
    folder, run = prepared[0], tmp_path / "run"
    done = command_here(
        *("train", "--prepared", folder, "--preset", "tiny", "--epochs", "2", "--output", run)
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"BLEU" in done.stdout and done.stderr == b""
    info = json.loads(command_here("info", "--model", run).stdout.decode().split("\n", 1)[1])
    assert info["command"] == (f"tf-transformer train --prepared {folder} --preset tiny --epochs 2")
    assert info["pairs"]["train"] == len(PreparedPairs(folder))
    assert info["preset"]["vocab_size"] == 300
    assert command_here("train", "--resume", run).returncode == 0
    opened = TrainingRun.open(run)
    assert opened.split.test == PreparedPairs(folder).held_out("test")
    again = command_here(
        "export", run / "saved_model", "--output", tmp_path / "8", "--weights-dtype", "int8"
    )
    assert again.returncode == 0, again.stderr.decode()
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"model": str(run), "steps": [{"step": "quantize"}]}))
    done = command_here("compress", recipe, "--output", tmp_path / "small")
    assert done.returncode == 2
    assert b"model: expected a run on pairs that fit into memory, got" in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["prepare", "--output", "new"], "--corpus, --source-file, --tsv: expected one of them"),
        (
            ["prepare", "--corpus", "en-zh", "--workers", 0, "--output", "new"],
            "--workers: expected",
        ),
        (["prepare", "--corpus", "en-de", "--output", "new"], "name: expected one of en-fr"),
        (
            ["train", "--prepared", "nowhere", "--output", "new"],
            "--prepared: expected a folder that",
        ),
    ],
)
def test_bad_input(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = command_here(*arguments)
    assert done.returncode == 2 and done.stderr.decode().startswith(f"tf-transformer: {message}")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_go_together(prepared, pairs, tmp_path):
    folder = prepared[0]
    for arguments, message in (
        (["prepare", "--tsv", pairs, "--output", folder], "--output: expected a new folder, got"),
        (
            ["train", "--prepared", folder, "--vocab-size", 9],
            "--subword, --vocab-size: expected none",
        ),
        (
            ["train", "--prepared", folder, "--tsv", pairs],
            "--tsv, --prepared: expected one of",
        ),
        (
            ["train", "--prepared", folder, "--validation-file", pairs],
            "--validation-file: expected n",
        ),
    ):
        done = command_here(
            *arguments, *(["--output", tmp_path / "x"] if "train" in arguments else [])
        )
        assert done.returncode == 2, arguments
        assert done.stderr.decode().startswith(f"tf-transformer: {message}")
        assert not (tmp_path / "x").exists()
