"""What the command shows of an error: one line for an input, everything for a bug."""

import argparse
import errno

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import cli
from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage

[COMMANDS] = [action.choices for action in cli._parser()._actions if action.choices]


def raised(error):
    def run(options):
        raise error

    return run


def ended(monkeypatch, capfd, command, run, **given):
    """Run a command that has another function; return its exit code and standard error."""
    options = {action.dest: None for action in COMMANDS[command]._actions}
    options = argparse.Namespace(**{**options, **given, "run": run})
    parser = argparse.ArgumentParser()
    monkeypatch.setattr(parser, "parse_args", lambda arguments: options)
    monkeypatch.setattr(cli, "_parser", lambda: parser)
    code = cli.main([])
    return code, capfd.readouterr().err


@pytest.mark.parametrize(
    "error, code, line",
    [
        (ArgumentError("size", "1", 2, "Halve it."), 2, "size: expected 1, got 2. Halve it."),
        (
            MissingFileError("x", "a file", "none", place="a/b"),
            2,
            "a/b: expected a file, got none.",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file", "a"), 2, "[Errno 2] No such file: 'a'"),
        (MissingPackage("faiss-cpu is not installed: pip"), 2, "faiss-cpu is not installed: pip"),
        (OSError(errno.ENOSPC, "disk full"), 1, f"[Errno {errno.ENOSPC}] disk full"),
        (ConnectionError("workers: lost one."), 1, "workers: lost one."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_in_the_input_is_one_line(monkeypatch, capfd, error, code, line):
    shown = code, f"tf-transformer: {line}\n"
    for command in COMMANDS:
        assert ended(monkeypatch, capfd, command, raised(error)) == shown, command


@pytest.mark.parametrize(
    "run, line",
    [
        (raised(ValueError("rows: expected 3, got 2.")), "ValueError: rows: expected 3, got 2."),
        (lambda options: np.ones(2) + np.ones(3), "ValueError: operands could not be broadcast"),
        (lambda options: int("three"), "ValueError: invalid literal for int()"),
        (
            lambda options: tf.ones((2, 3)) @ tf.ones((2, 3)),
            "InvalidArgumentError: {{function_node",
        ),
        (lambda options: tf.keras.layers.Dense(3)(tf.ones(())), "ValueError: Input 0 of layer"),
        (lambda options: tf.debugging.assert_equal(1, 2), "InvalidArgumentError: "),
        (raised(ImportError("cannot import name 'x'")), "ImportError: cannot import name 'x'"),
        (raised(TypeError("f() takes 1 argument")), "TypeError: f() takes 1 argument"),
    ],
    ids=["ours", "numpy", "python", "tensorflow", "keras", "assertion", "import", "type"],
)
def test_a_bug_is_shown_whole(monkeypatch, capfd, run, line):
    for command in COMMANDS:
        code, said = ended(monkeypatch, capfd, command, run)
        assert code == 1 and "Traceback (most recent call last):" in said and line in said, command
        assert said.endswith(f"tf-transformer: {cli._BUG}\n")
    assert "\n" not in cli._BUG and "report" in cli._BUG


def test_an_assertion_in_a_graph_says_what_ours_says(monkeypatch, capfd):
    @tf.function
    def compute(length):
        tf.debugging.Assert(length < 3, ["length: expected at most 2, got", length])
        return length

    code, said = ended(monkeypatch, capfd, "translate", lambda options: compute(tf.constant(5)))
    assert code == 2 and "length: expected at most 2, got" in said and "Traceback" not in said


@pytest.mark.parametrize(
    "command, given, argument, shown",
    [
        ("train", {}, "vocab_size", "--vocab-size"),
        ("train", {"tsv": ["a"]}, "data", "--tsv"),
        ("train", {}, "data", "--corpus, --source-file, --tsv, --prepared"),
        ("train", {"output": "a"}, "folder", "--output"),
        ("train", {"resume": "a"}, "folder", "--resume"),
        ("train-lm", {"text": ["a"]}, "data", "--text"),
        ("translate", {}, "source, target", "--file, --output"),
        ("export", {}, "folder", "folder"),  # a positional argument, although there is --output
        ("explore", {}, "model_or_folder", "--model"),
        ("export", {}, "beam_size, strange", "beam_size, strange"),
        ("embed", {}, "beam_size", "beam_size"),
    ],
)
def test_an_argument_is_named_by_its_option(monkeypatch, capfd, command, given, argument, shown):
    error = ArgumentError(argument, "more: as much as possible", "a: b")
    code, said = ended(monkeypatch, capfd, command, raised(error), **given)
    assert (code, said) == (
        2,
        f"tf-transformer: {shown}: expected more: as much as possible, got a: b.\n",
    )
    placed = ArgumentError(argument, "more", place="a.tsv, line 3")
    _, said = ended(monkeypatch, capfd, command, raised(placed), **given)
    assert said == "tf-transformer: a.tsv, line 3: expected more.\n"
