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


def printed(kind, how="greedy"):
    cases = json.loads((FOLDERS / kind / "cases.json").read_text(encoding="utf-8"))
    return cases["texts"], "".join(f"{text}\n" for text in cases[how])


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
    assert run("translate", "--model", tmp_path / "model", *file) == expected
    export = ("export", FOLDERS / "nllb", "--output", tmp_path / "model")
    run(*export)  # each call names the languages
    assert run("generate", "--model", tmp_path / "model", *LANGUAGES, *texts) == expected
    assert run("translate", "--model", tmp_path / "model", *LANGUAGES, *texts) == expected
    run(*export, "--beam-size", 3)
    found = run("generate", "--model", tmp_path / "model", *LANGUAGES, *texts)
    assert found == printed("nllb", "beams")[1]


def test_what_is_refused(tmp_path):
    nllb = ("translate", "--model", FOLDERS / "nllb", "low")
    message = "--source-language: expected the language of the texts, such as eng_Latn, fra_Latn"
    assert message in run(*nllb, code=2)
    message = "--source-language: expected one of eng_Latn, fra_Latn"
    assert message in run(*nllb, "--source-language", "eng", code=2)
    for option in ("--beam", "--n-best"):
        found = run("translate", "--model", FOLDERS / "marian", option, "low", code=2)
        assert "a translator that was trained here for --beam, --n-best and --output" in found
    decoder = VECTORS / "text_generation" / "gpt2"
    found = run("translate", "--model", decoder, "low", code=2)
    assert f"--model: expected a translator, got a decoder, {decoder}. Continue texts" in found
    found = run("translate", *LANGUAGES, "low", code=2)
    assert "expected a published translator, got another" in found
    found = run("export", tmp_path, *LANGUAGES, "--output", tmp_path / "model", code=2)
    assert "expected a published translator, got another" in found
