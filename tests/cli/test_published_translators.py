"""The commands translate, generate and export with a published translator."""

import json

import pytest
from command_line import command_here
from loading import VECTORS

pytestmark = pytest.mark.one_of(10, "texts")

FOLDERS = VECTORS / "text_to_text"
LANGUAGES = ("--source-language", "eng_Latn", "--target-language", "fra_Latn")


def run(*arguments, code=0):
    done = command_here(*arguments)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


def printed(kind):
    cases = json.loads((FOLDERS / kind / "cases.json").read_text(encoding="utf-8"))
    return cases["texts"], "".join(f"{text}\n" for text in cases["greedy"])


@pytest.mark.slow
def test_translate():
    texts, expected = printed("marian")
    assert run("translate", "--model", FOLDERS / "marian", *texts) == expected
    sample = ("--sample", "--seed", 4, "--temperature", 1.5)
    assert run("translate", "--model", FOLDERS / "marian", *texts, *sample) != expected


@pytest.mark.slow
def test_files_and_languages(tmp_path):
    texts, expected = printed("nllb")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    file = ("--file", tmp_path / "texts.txt")
    assert run("translate", "--model", FOLDERS / "nllb", *LANGUAGES, *file) == expected
    assert run("generate", "--model", FOLDERS / "nllb", *LANGUAGES, *texts) == expected
    run("export", FOLDERS / "nllb", *LANGUAGES, "--output", tmp_path / "model")
    assert run("generate", "--model", tmp_path / "model", *texts) == expected


def test_what_is_refused(tmp_path):
    message = "--source-language: expected one of eng_Latn, fra_Latn"
    assert message in run("translate", "--model", FOLDERS / "nllb", "low", code=2)
    for option in ("--beam", "--n-best"):
        found = run("translate", "--model", FOLDERS / "marian", option, "low", code=2)
        assert "expected an exported translator for --beam, --n-best and --output" in found
    found = run("translate", *LANGUAGES, "low", code=2)
    assert "expected a published translator, got another" in found
    found = run("export", tmp_path, *LANGUAGES, "--output", tmp_path / "model", code=2)
    assert "expected a published translator, got another" in found
