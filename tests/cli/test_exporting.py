"""The commands export, evaluate and info of translators: output, files and exit codes."""

import json
import shutil

import pytest
import tensorflow as tf
from command_line import command, command_here

pytestmark = pytest.mark.one_of(10, "long")


def test_info_evaluate_and_export(run, tmp_path):
    folder, _ = run
    info = command("info", "--model", folder)
    description = json.loads(info.stdout.decode().split("\n", 1)[1])
    assert description["command"].startswith("tf-transformer train --tsv")
    scores = json.loads(command_here("evaluate", "--model", folder).stdout)
    assert scores == description["scores"]
    exported = command_here("export", folder, "--output", tmp_path / "model")
    assert exported.returncode == 0
    again = command_here("info", tmp_path / "model").stdout.decode().split("\n", 1)[1]
    assert json.loads(again) == description


def test_a_run_goes_on_from_another_folder(other_run, tmp_path, monkeypatch):
    shutil.copytree(other_run, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    done = command_here("export", "run")
    assert done.returncode == 0, done.stderr.decode()


def test_a_beam_and_its_n_best(run, tmp_path):
    folder, _ = run
    model = tmp_path / "model"
    arguments = ("--beam-size", "3", "--length-penalty", "1.0", "--n-best", "2", "--jit-compile")
    assert command_here("export", folder, "--output", model, *arguments).returncode == 0
    best = command_here("translate", "--model", model, "--beam", "Tom", "Hi you")
    assert best.returncode == 0 and best.stderr == b""
    found = command_here("translate", "--model", model, "--n-best", "Tom", "Hi you")
    rows = [line.split("\t") for line in found.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert [row[2] for row in rows[::2]] == best.stdout.decode().splitlines()
    scores = [float(row[1]) for row in rows]
    assert 0 > scores[0] >= scores[1] and 0 > scores[2] >= scores[3]
    bad = command_here("export", folder, "--output", tmp_path / "bad", "--beam-size", "0")
    assert bad.returncode != 0 and b"--beam-size: expected at least 1, got 0" in bad.stderr
    assert not (tmp_path / "bad").exists()


@pytest.fixture(scope="module")
def with_rules(run, tmp_path_factory):
    """Export the run with rules; return the folder."""
    model = tmp_path_factory.mktemp("rules") / "model"
    rules = ["--min-length", "3", "--no-repeat-ngram", "1", "--length-limit", "0", "4"]
    done = command_here("export", run[0], "--output", model, *rules)
    assert done.returncode == 0, done.stderr.decode()
    return model


def test_rules_are_exported(run, with_rules, tmp_path):
    settings = json.loads((with_rules / "translator.json").read_text("utf-8"))["decoding"]
    assert settings["min_length"] == 3 and settings["length_limit"] == [0, 4]
    assert settings["no_repeat_ngram"] == 1
    refused = command_here("export", run[0], "--output", tmp_path / "other", "--min-length", "-1")
    assert refused.returncode == 2 and b"--min-length: expected at least 0" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_an_exported_model_is_exported_again(with_rules, tmp_path):
    model, again = with_rules, tmp_path / "again"
    done = command_here("export", model, "--output", again, "--n-best", "3", "--beam-size", "4")
    assert done.returncode == 0, done.stderr.decode()
    assert b"BLEU" not in done.stdout  # unchanged greedy translations keep their scores
    before, after = (json.loads((m / "translator.json").read_text("utf-8")) for m in (model, again))
    assert after["decoding"] == {**before["decoding"], "n_best": 3, "beam_size": 4}
    assert {**after, "decoding": 0} == {**before, "decoding": 0}
    assert (again / "attention.svg").read_bytes() == (model / "attention.svg").read_bytes()
    texts = ["Tom is here", "Hi you", ""]
    for how in ((), ("--sample",)):
        one, other = (command_here("translate", "--model", m, *how, *texts) for m in (model, again))
        assert one.stdout == other.stdout
    found = command_here("translate", "--model", again, "--n-best", "Hi you").stdout
    assert found.count(b"\n") == 3
    # Rules and rounded weights change the greedy translations: `export` scores them again.
    for change in (("--weights-dtype", "float16"), ("--min-length", "4")):
        third = command_here("export", again, "--output", again, *change)
        assert third.returncode == 0 and b"BLEU" in third.stdout
    description = json.loads((again / "translator.json").read_text("utf-8"))
    assert description["weights_dtype"] == "float16"
    assert tf.saved_model.load(str(again)).weights[0].dtype == tf.float16
    refused = command_here("export", model)
    assert refused.returncode == 2 and b"--output: expected a folder" in refused.stderr


def test_a_model_with_integers_is_final(with_rules, tmp_path):
    integers = tmp_path / "int8"
    done = command_here("export", with_rules, "--output", integers, "--weights-dtype", "int8")
    assert done.returncode == 0 and b"BLEU" in done.stdout, done.stderr.decode()
    description = json.loads((integers / "translator.json").read_text("utf-8"))
    assert description["weights_dtype"] == "int8"
    assert b"_QuantizedMatMul" in (integers / "saved_model.pb").read_bytes()
    done = command_here("translate", "--model", integers, "Tom is here", "Hi you", "")
    assert done.returncode == 0 and done.stdout.count(b"\n") == 3
    refused = command_here("export", integers, "--output", tmp_path / "again")
    assert refused.returncode == 2 and b"expected a model with float weights" in refused.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.whole
def test_runs_become_an_ensemble(run, other_run, tmp_path):
    (folder, _), model = run, tmp_path / "model"
    done = command_here("export", folder, other_run, "--output", model)
    assert done.returncode == 0, done.stderr.decode()
    description = json.loads((model / "translator.json").read_text("utf-8"))
    single = json.loads((folder / "saved_model" / "translator.json").read_text("utf-8"))
    assert description["weights"] == 2 * single["weights"]
    assert description["command"].endswith(" --seed 2") and ";" in description["command"]
    texts = ["Tom is here", "Hi you"]
    one, both = (command_here("translate", "--model", m, *texts).stdout for m in (folder, model))
    assert both.count(b"\n") == 2 and one != both
    again = tmp_path / "again"
    assert command_here("export", model, "--output", again, "--n-best", "2").returncode == 0
    assert command_here("translate", "--model", again, *texts).stdout == both
    mixed = command_here("export", folder, model, "--output", again)
    assert mixed.returncode == 2 and b"expected runs only, or one exported model" in mixed.stderr
    alone = command_here("export", folder, other_run)
    assert alone.returncode == 2 and b"--output: expected a folder for the ensemble" in alone.stderr


def test_export_replaces_no_folder_of_somebody_else(run, tmp_path):
    folder, _ = run
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("mine")
    before = sorted(folder.rglob("*"))
    for target in (precious, folder, folder.parent):
        done = command_here("export", folder, "--output", target)
        assert done.returncode == 2 and done.stdout == b""
        assert b"expected a new folder, or one with translator.json" in done.stderr
    assert (precious / "thesis.txt").read_text() == "mine"
    assert sorted(folder.rglob("*")) == before
