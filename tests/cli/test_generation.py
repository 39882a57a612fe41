"""The commands generate, export and serve with a published decoder."""

import json

import pytest
import tensorflow as tf
from command_line import command, command_here
from small_generators import generator_folder

from tf_transformer import TextGenerator
from tf_transformer.cli import _parser

pytestmark = pytest.mark.one_of(10, "long")

TEXTS = ["the cat", "on a day\n"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return generator_folder(tmp_path_factory.mktemp("model") / "gpt2", "gpt2", max_new_tokens=9)


@pytest.fixture(scope="module")
def generator(folder):
    return TextGenerator.from_pretrained(folder)


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "model"
    done = command_here("export", folder, "--output", path)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"Model: {path}\n"
    return path


def generated(folder, *arguments, code=0):
    done = command_here("generate", "--model", folder, *arguments)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


def printed(texts, found):
    return "".join(f"{t}{new.decode()}\n" for t, new in zip(texts, found.numpy(), strict=True))


def test_generate(folder, generator):
    assert generated(folder, *TEXTS) == printed(TEXTS, generator.generate(TEXTS))
    how = {"max_new_tokens": 14, "stop": ["na", "x"]}
    options = ["--max-new-tokens", 14, "--stop", "na", "--stop", "x"]
    assert generated(folder, *options, *TEXTS) == printed(TEXTS, generator.generate(TEXTS, **how))
    how = {"temperature": 1.5, "top_k": 30, "seed": 4}
    options = ["--sample", "--temperature", 1.5, "--top-k", 30, "--seed", 4]
    found = generator.sample(TEXTS[:1], **how)
    assert generated(folder, TEXTS[0], *options) == printed(TEXTS[:1], found)
    found = generator.sample(TEXTS[:1])
    assert generated(folder, TEXTS[0], "--sample") == printed(TEXTS[:1], found)


def test_beams(folder, tmp_path):
    generator = TextGenerator.from_pretrained(folder, num_beams=3)
    expected = printed(TEXTS, generator.generate(TEXTS))
    assert generated(folder, *TEXTS, "--beam", 3) == expected
    done = command_here("export", folder, "--output", tmp_path / "m", "--beam-size", 3)
    assert done.returncode == 0 and generated(tmp_path / "m", *TEXTS) == expected


def test_an_exported_one(exported, generator):
    assert generated(exported, *TEXTS) == printed(TEXTS, generator.generate(TEXTS))
    loaded = tf.saved_model.load(str(exported))
    assert json.loads(loaded.settings.numpy())["max_new_tokens"] == 9
    assert "--beam: expected a published model" in generated(exported, "--beam", 2, code=2)


@pytest.mark.slow
def test_in_a_new_process(folder, generator):
    done = command("generate", "--model", folder, *TEXTS)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == printed(TEXTS, generator.generate(TEXTS))


def test_bad_input(folder, tmp_path):
    for arguments, message in (
        (["a" * 44], "text: expected at most 43 tokens in each, as many as the model can read"),
        (["a", "--max-new-tokens", 44], "expected at most 43 tokens"),
        (["a", "--max-new-tokens", 0], "--max-new-tokens: expected at least 1, got 0"),
        (["a", "--max-length", 9], "--max-length: expected --run as well"),
        (["a", "--top-k", 3], "--top-k: expected --sample as well"),
        (["a", "--beam", 0], "--beam: expected at least 1"),
        (["a", "--stop", ""], "--stop: expected a list of strings that are not empty"),
    ):
        assert message in generated(folder, *arguments, code=2), arguments
    assert "--model: expected a folder with a published" in generated(tmp_path, "a", code=2)
    done = command_here("generate", "--run", tmp_path, "a", "--stop", "x")
    assert done.returncode == 2 and b"--stop: expected --model as well" in done.stderr


def test_bad_input_of_export(folder, tmp_path):
    for arguments, message in (
        ([folder], "folder, --output: expected one published model and a folder"),
        ([folder, "--output", tmp_path / "m", "--n-best", 2], "--n-best: expected none with a pub"),
        ([folder, "--output", folder], "expected a new folder, or one with saved_model.pb"),
    ):
        done = command_here("export", *arguments)
        assert done.returncode == 2 and message in done.stderr.decode(), arguments


def test_serve_takes_both(folder, exported, generator):
    from tf_transformer.serving import Task

    for path in (folder, exported):
        options = {"max_new_tokens": 0, "stop": []}
        [result] = Task(path)([(TEXTS[0], options)])
        expected = generator.generate(TEXTS[:1]).numpy()[0].decode()
        assert result == {"continuation": expected}
    assert _parser().parse_args(["serve", "--most-new-tokens", "7"]).most_new_tokens == 7
