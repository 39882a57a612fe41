"""The command train: output, files and exit codes."""

import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command_line import ENVIRONMENT, ROOT, START, command, command_here

from tf_transformer.training import TrainingRun

pytestmark = pytest.mark.one_of(10, "long")


def test_help_needs_no_tensorflow():
    script = (
        "import sys\nfrom tf_transformer.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "assert 'tensorflow' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr.decode()
    for name in (b"train", b"translate", b"evaluate", b"export", b"info", b"train-lm", b"generate"):
        assert name in done.stdout
    module = [sys.executable, "-m", "tf_transformer", "--help"]
    same = subprocess.run(module, capture_output=True, env={"PYTHONPATH": str(ROOT)})
    assert (same.returncode, same.stdout) == (0, done.stdout)


def test_train_scores_exports_and_translates(run):
    folder, done = run
    out = done.stdout.decode()
    assert "BLEU" in out and "tok:13a" in out and "chrF" in out
    assert "batch shapes" in out and f"Model: {folder / 'saved_model'}" in out
    assert done.stderr == b""
    assert (folder / "saved_model" / "README.md").is_file()
    assert (folder / "saved_model" / "attention.svg").read_text("utf-8").startswith("<svg")


@pytest.mark.one_of(10)
@pytest.mark.parametrize("subword", ["wordpiece", "unigram"])
def test_other_subword_models_train_in_float16_and_translate(pairs, tmp_path, subword):
    folder = tmp_path / "run"
    arguments = ["--tsv", pairs, "--preset", "tiny", "--subword", subword, "--vocab-size", "300"]
    done = command_here("train", *arguments, "--precision", "mixed_float16", "--output", folder)
    assert done.returncode == 0, done.stderr.decode()
    assert b"BLEU" in done.stdout and done.stderr == b""
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    assert tokenizer["model"]["type"].lower() == subword
    assert len(tokenizer["model"]["vocab"]) == 300
    info = json.loads(command_here("info", "--model", folder).stdout.decode().split("\n", 1)[1])
    given = f"--subword {subword} --vocab-size 300 --precision mixed_float16"
    assert given in info["command"]
    again = command_here("translate", "--model", folder, "Tom is here.")
    assert again.returncode == 0 and again.stdout.count(b"\n") == 1


def test_several_files_and_a_validation_set_in_a_tree_that_moves(pairs, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    lines = pairs.read_text("utf-8").splitlines(keepends=True)
    for name, part in (("a", lines[:150]), ("b", lines[150:280]), ("dev", lines[280:])):
        (project / "data" / f"{name}.tsv").write_text("".join(part), "utf-8")
    monkeypatch.chdir(project)
    files = ["--tsv", "data/a.tsv", "data/b.tsv", "--validation-file", "data/dev.tsv"]
    done = command_here("train", *files, "--preset", "tiny", "--output", "runs/first")
    assert done.returncode == 0, done.stderr.decode()
    monkeypatch.chdir(tmp_path)
    project.rename(tmp_path / "elsewhere")
    done = command_here("train", "--resume", "elsewhere/runs/first")
    assert done.returncode == 0, done.stderr.decode()
    found = tmp_path / "elsewhere" / "runs" / "first" / "saved_model" / "translator.json"
    description = json.loads(found.read_text("utf-8"))
    assert description["pairs"]["validation"] == 20
    assert "b.tsv --validation-file " in description["command"]
    # Only the run moves; the data stay in place.
    (tmp_path / "elsewhere" / "runs" / "first").rename(tmp_path / "first")
    assert len(TrainingRun.open("first").split.validation) == 20


def test_a_finished_run_is_not_overwritten(run, pairs, tmp_path):
    folder = shutil.copytree(run[0], tmp_path / "run")
    done = command("train", "--tsv", pairs, "--preset", "tiny", "--output", folder)
    assert done.returncode == 2 and b"--resume" in done.stderr
    assert done.stderr.startswith(b"tf-transformer: ") and done.stderr.count(b"\n") == 1


@pytest.mark.one_of(10)
@pytest.mark.fault
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(pairs, tmp_path, number, code):
    folder, options = tmp_path / "run", ("--preset", "tiny", "--epochs", "500")
    process = subprocess.Popen(
        [*START, "train", "--tsv", pairs, *options, "--output", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        # Background jobs of a shell ignore SIGINT, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(600):
        if (folder / "best.weights.h5").exists() or process.poll() is not None:
            break
        time.sleep(0.2)
    refused = command_here("train", "--resume", folder)
    assert refused.returncode == 2
    message = f"expected a folder that no other process uses, got process {process.pid} on"
    assert message in refused.stderr.decode()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == code
    assert f"tf-transformer train --resume {folder}" in stderr.decode()
    settings = json.loads((folder / "run.json").read_text())
    settings["preset"]["epochs"] = 1
    (folder / "run.json").write_text(json.dumps(settings))
    done = command_here("train", "--resume", folder)
    assert done.returncode == 0 and b"BLEU" in done.stdout


@pytest.mark.fault
def test_a_full_disk_ends_with_a_message_and_costs_nothing(pairs, tmp_path):
    folder, most = (
        tmp_path / "run",
        600 * 1024,
    )  # less than the weights with HDF5, more than a checkpoint
    done = subprocess.run(
        [*START, "train", "--tsv", pairs, "--preset", "tiny", "--output", folder],
        capture_output=True,
        env=ENVIRONMENT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert done.returncode == 1
    message = done.stderr.decode()
    assert re.fullmatch(
        r"\nA checkpoint is saved. .*\n"
        r"tf-transformer: .*File too large, .* bytes are needed: .*best.weights.h5'\n",
        message,
    )
    names = ["checkpoints", "history.csv", "run.json", "tokenizer.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    done = command_here("train", "--resume", folder)
    assert done.returncode == 0 and b"BLEU" in done.stdout


def test_another_architecture_trains_resumes_and_is_described(pairs, tmp_path):
    file, folder = tmp_path / "mine.json", tmp_path / "run"
    file.write_text('{"positions": {"part": "RotaryPositions"}, "num_key_value_heads": 1}')
    arguments = ["--tsv", pairs, "--preset", "tiny", "--architecture", file, "--vocab-size", "300"]
    done = command_here("train", *arguments, "--output", folder)
    assert done.returncode == 0, done.stderr.decode()
    assert b"BLEU" in done.stdout and done.stderr == b""
    settings = json.loads((folder / "run.json").read_text())["preset"]["architecture"]
    assert settings["num_key_value_heads"] == 1 and settings["residual"] == {"part": "PostNorm"}
    assert json.loads((folder / "architecture.json").read_text()) == settings
    info = json.loads(command_here("info", "--model", folder).stdout.decode().split("\n", 1)[1])
    assert info["preset"]["architecture"] == settings
    assert info["model"]["architecture"] == settings  # of the model that was trained
    assert f"--architecture {folder / 'architecture.json'}" in info["command"]
    card = (folder / "saved_model" / "README.md").read_text("utf-8")
    assert '"part": "RotaryPositions", "base": 10000.0' in card
    assert command_here("train", "--resume", folder).returncode == 0
    assert command_here("translate", "--model", folder, "Tom is here.").stdout.count(b"\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("transformer-tinny", "--architecture: expected one of .*did you mean 'transformer-tiny'"),
        ("bert-base", "--architecture: expected a Transformer, got 'bert-base', a Bert"),
        ("field.json", "--architecture: expected fields among .*did you mean 'positions'"),
        ("broken.json", "--architecture: expected JSON, got "),
        ("list.json", "--architecture: expected a dict of "),
        ("none.json", "No such file or directory: 'none.json'"),
    ],
)
def test_wrong_architectures(given, message, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "field.json").write_text('{"position": {"part": "NoPositions"}}')
    (tmp_path / "broken.json").write_text('{"positions": ')
    (tmp_path / "list.json").write_text("[]")
    done = command_here("train", "--tsv", pairs, "--architecture", given, "--output", "run")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert re.search(message, done.stderr.decode())
    assert not (tmp_path / "run").exists()


def test_a_published_architecture_sets_the_sizes():
    from tf_transformer.cli.training import architecture_changes
    from tf_transformer.models import LanguageModel, Transformer

    changes = architecture_changes("macaron-base", Transformer)
    assert changes["d_model"] == 512 and changes["dff"] == 1024 and changes["num_layers"] == 6
    assert changes["architecture"]["feed_forward"]["part"] == "MacaronFeedForward"
    assert architecture_changes("gpt2", LanguageModel)["num_layers"] == 12
