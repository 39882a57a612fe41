"""The commands train-lm and generate: output, files and exit codes."""

import json
import shutil

import pytest
from command_line import command, command_here
from small_language_model import write_circles

from tf_transformer import Architecture, PreNorm, RotaryPositions

pytestmark = pytest.mark.one_of(10, "long")

ARCHITECTURE = Architecture(RotaryPositions(), residual=PreNorm())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train once; return the run's folder and the completed process."""
    folder = tmp_path_factory.mktemp("lm")
    write_circles(folder / "circles.txt")
    (folder / "architecture.json").write_text(ARCHITECTURE.to_json(), "utf-8")
    arguments = ["--text", folder / "circles.txt", "--preset", "tiny", "--vocab-size", "300"]
    arguments += ["--epochs", "2", "--architecture", folder / "architecture.json"]
    arguments += ["--precision", "mixed_bfloat16"]
    done = command("train-lm", *arguments, "--output", folder / "run")
    assert done.returncode == 0, done.stderr.decode()
    return folder / "run", done


def generated(folder, *arguments, code=0):
    done = command_here("generate", "--run", folder, *arguments)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


def test_train_lm_prints_its_perplexity_and_three_texts(trained):
    folder, done = trained
    out = done.stdout.decode()
    assert done.stderr == b""
    after = out.split("Perplexity per token of the held-out documents: ")[1]
    number, empty, *texts, blank, model = after.splitlines()
    assert 1.0 < float(number) < 300 and empty == blank == ""
    assert len(texts) == 3 and model == f"Model: {folder}"
    settings = json.loads((folder / "run.json").read_text("utf-8"))["preset"]
    assert settings["architecture"] == ARCHITECTURE.to_dict()
    assert settings["vocab_size"] == 300 and settings["epochs"] == 2
    assert settings["precision"] == "mixed_bfloat16"


def test_generate(trained):
    folder, _ = trained
    for how in ((), ("--beam", 3), ("--sample", "--seed", 4, "--top-k", 9, "--temperature", 2)):
        lines = generated(folder, "one two", "", "five", *how, "--max-length", 12).splitlines()
        assert len(lines) == 3
        assert lines[0].startswith("one two") and lines[2].startswith("five")
    assert generated(folder).count("\n") == 1
    first, again, other = (
        generated(folder, "one two", "--max-length", 20, "--sample", "--seed", seed)
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_bad_input_of_generate(trained, tmp_path):
    folder, _ = trained
    for arguments, message in (
        (("one " * 80,), "text: expected a beginning of at most 64 tokens"),
        (("one", "--max-length", 65), "--max-length: expected at most 64"),
        (("one", "--max-length", 0), "--max-length: expected at least 1"),
        (("one", "--beam", 0), "--beam: expected at least 1"),
        (("one", "--top-k", 3), "--top-k: expected --sample as well"),
        (("one", "--sample", "--temperature", 0), "--temperature: expected more than 0"),
        (("one", "--sample", "--beam", 2), "not allowed with argument"),
    ):
        assert message in generated(folder, *arguments, code=2), arguments
    assert "no run.json" in generated(tmp_path, "one", code=2)


def test_a_finished_run_is_not_overwritten_and_can_be_resumed(trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    done = command_here("train-lm", "--preset", "tiny", "--output", folder)
    assert done.returncode == 2
    assert f"tf-transformer train-lm --resume {folder}" in done.stderr.decode()
    done = command_here("train-lm", "--resume", folder, "--epochs", 3)
    assert done.returncode == 2 and b"--epochs: expected no setting with --resume" in done.stderr
    done = command_here("train-lm", "--resume", folder)
    assert done.returncode == 0 and b"Perplexity" in done.stdout


def test_bad_input_of_train_lm(tmp_path):
    file = tmp_path / "architecture.json"
    for content, message in (
        ('{"position": {}}', "--architecture: expected fields among"),
        ("{", "--architecture: expected JSON"),
        ("[]", "--architecture: expected a dict of"),
    ):
        file.write_text(content, "utf-8")
        done = command_here("train-lm", "--architecture", file, "--output", tmp_path / "run")
        assert done.returncode == 2 and message in done.stderr.decode(), content
    done = command_here("train-lm", "--architecture", "macaron-base")
    assert done.returncode == 2
    assert b"expected a LanguageModel, got 'macaron-base', a Transformer" in done.stderr
    done = command_here("train-lm", "--corpus", "en-xx", "--output", tmp_path / "run")
    assert done.returncode == 2 and b"expected one of en-fr" in done.stderr
    assert not (tmp_path / "run").exists()
