"""The command translate, and bad input of all translation commands."""

import gzip
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from command_line import ENVIRONMENT, command, command_here

from tf_transformer.export.translation import folder as exported

pytestmark = pytest.mark.one_of(10, "long")


def test_translate_arguments_file_and_standard_input_agree(run, tmp_path):
    folder, _ = run
    lines = ["Tom", "", "Hi you"]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    by_argument = command_here("translate", "--model", folder, *lines)
    by_file = command_here("translate", "--model", folder, "--file", file)
    by_input = command("translate", "--model", folder, stdin=file.read_bytes())
    assert by_argument.returncode == by_file.returncode == by_input.returncode == 0
    assert by_argument.stdout == by_file.stdout == by_input.stdout
    assert by_argument.stdout.count(b"\n") == 3
    assert by_argument.stderr == by_file.stderr == by_input.stderr == b""


def test_output_is_utf8_whatever_the_locale(run, monkeypatch):
    """Written to a file, it once followed the console: ASCII or cp1252 cannot encode Chinese."""
    folder, _ = run
    monkeypatch.setitem(ENVIRONMENT, "PYTHONIOENCODING", "ascii")
    by_input = command("translate", "--model", folder, stdin="Tom 中\n".encode())
    assert by_input.returncode == 0, by_input.stderr
    assert by_input.stdout == command_here("translate", "--model", folder, "Tom 中").stdout


def test_graphs_are_optimized_for_files_only(run, tmp_path, monkeypatch):
    folder, _ = run
    chosen = []

    def seen(path):
        options = tf.config.optimizer.get_experimental_options()
        chosen.append(not options["disable_meta_optimizer"])
        raise ValueError("seen")

    monkeypatch.setattr(exported, "load_translator", seen)
    file = tmp_path / "lines.txt"
    file.write_text("Tom\n", encoding="utf-8")
    command_here("translate", "--model", folder, "Tom")
    command_here("translate", "--model", folder, "--file", file)
    assert chosen == [False, True]
    assert not tf.config.optimizer.get_experimental_options()["disable_meta_optimizer"]


def test_samples(run, tmp_path):
    folder, _ = run
    lines = ["Tom is here", "Hi you", "Tom"] * 4
    ask = ("translate", "--model", folder, "--sample", "--seed")
    first, again, other = (command_here(*ask, seed, *lines).stdout for seed in (3, 3, 4))
    assert first == again != other
    drawn = first.decode().splitlines()
    assert len(drawn) == 12 and len(set(drawn[::3])) > 1  # several samples of one text
    greedy = command_here("translate", "--model", folder, *lines).stdout
    likeliest = command_here(*ask, 3, "--top-k", "1", *lines).stdout
    assert likeliest == greedy != first
    source = tmp_path / "lines.txt"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    to_file = (*ask, 3, "--file", source, "--output", tmp_path / "out.txt")
    assert command_here(*to_file).returncode == 0
    assert (tmp_path / "out.txt").read_bytes() == first


def test_a_file_to_a_file(run, tmp_path):
    folder, _ = run
    lines = ["Tom", "", "Hi you", "Tom is here"] * 3
    source, target = tmp_path / "lines.txt", tmp_path / "out.txt"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = command("translate", "--model", folder, "--file", source, "--output", target)
    assert done.returncode == 0 and done.stdout == done.stderr == b""
    printed = command_here("translate", "--model", folder, "--file", source)
    assert target.read_bytes() == printed.stdout
    again = command_here("translate", "--model", folder, "--file", source, "--output", target)
    assert again.returncode != 0 and b"--output: expected a new file" in again.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--output", "x", "Tom"], b"--output: expected --file as well, got none"),
        (["--output", "x", "--file", "y", "--n-best"], b"--n-best: expected no --output"),
        (["--file", "y", "Tom"], b"text, --file: expected one of them, got both"),
        (["--seed", "1", "--top-k", "2", "Tom"], b"--seed, --top-k: expected --sample as well"),
        (["--beam", "--sample", "Tom"], b"not allowed with argument"),
        (["--sample", "--top-p", "2", "Tom"], b"--top-p: expected more than 0, at most 1, got 2.0"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    done = command_here("translate", *arguments)
    assert done.returncode != 0 and message in done.stderr


def test_bytes_that_are_no_text_end_nothing(run):
    folder, _ = run
    done = command_here("translate", "--model", folder, stdin=b"Tom\n\xff\xfe\x00\nTom")
    lines = done.stdout.split(b"\n")
    assert done.returncode == 0 and len(lines) == 4 and lines[0] == lines[2]


def test_a_text_that_is_cut_is_named(run):
    folder, _ = run
    long = "word " * 300
    done = command_here("translate", "--model", folder, stdin=f"Tom\n{long}\nTom\n".encode())
    assert done.returncode == 0 and done.stdout.count(b"\n") == 3
    message = done.stderr.decode()
    assert message.startswith("tf-transformer: text 2 has ") and message.count("\n") == 1
    assert "the model reads 191" in message  # tiny preset: 2 x 96 positions, one for the end token


def test_a_test_set_of_ones_own_is_scored_whole(run, pairs, tmp_path):
    folder, _ = run
    lines = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()[:30]]
    sides = tmp_path / "test.en", tmp_path / "test.fr"
    for side, file in zip(zip(*lines, strict=True), sides, strict=True):
        file.write_text("\n".join(side) + "\n", encoding="utf-8")
    files = ["--source-file", sides[0], "--target-file", sides[1]]
    scores = json.loads(command_here("evaluate", "--model", folder, *files).stdout)
    assert scores["sentences"] == len({source for source, _ in lines})
    split = json.loads(command_here("evaluate", "--model", folder, "--tsv", pairs).stdout)
    assert split["sentences"] < 30  # only the test split of the file it was trained on


def test_a_byte_order_mark_is_no_text_and_gzip_is_refused(run, tmp_path):
    folder, _ = run
    file, packed = tmp_path / "lines.txt", tmp_path / "lines.gz"
    file.write_bytes(b"\xef\xbb\xbfHi you\n")
    packed.write_bytes(gzip.compress(b"Hi you\n"))
    plain = command_here("translate", "--model", folder, "Hi you").stdout
    assert command_here("translate", "--model", folder, "--file", file).stdout == plain
    assert command_here("translate", "--model", folder, stdin=file.read_bytes()).stdout == plain
    done = command_here("translate", "--model", folder, "--file", packed)
    assert done.returncode == 2 and b"is gzipped. Unpack it: gunzip" in done.stderr


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--preset", "huge"], "--preset: expected one of small, tiny, base, got 'huge'"),
        (["train", "--corpus", "en-xx"], "expected one of en-fr, en-zh"),
        (["train", "--epochs", "0"], "--epochs: expected at least 1, got 0"),
        (["train", "--subword", "words"], "expected one of bpe, wordpiece, unigram, got 'words'"),
        # There are more Chinese characters than that; the failed run leaves no folder.
        (
            ["train", "--preset", "tiny", "--subword", "unigram"],
            "--vocab-size: expected an integer",
        ),
        (["train", "--subword", "wordpiece", "--vocab-size", "9"], "every character of the texts"),
        (["train", "--source-file", "a.en"], "--source-file, --target-file: expected both or"),
        (
            ["train", "--source-file", "a.en", "b.en", "--target-file", "a.de"],
            "expected as many target files as source files, got 2 and 1",
        ),
        (
            ["train", "--tsv", "a", "--validation-file", "a", "b", "c"],
            "--validation-file: expected a TSV file, or a source and a target file, got 3",
        ),
        (["train", "--tsv", "none.tsv"], "none.tsv"),
        (["train", "--resume", "nowhere"], "expected the folder of a run"),
        (
            ["train", "--resume", "run", "--epochs", "0", "--preset", "tiny"],
            "--preset, --epochs: expected no setting with --resume",
        ),
        (["translate", "--model", "nowhere", "hi"], "expected the folder of an exported"),
        (["translate", "--file", "nowhere"], "expected a text file, got no file nowhere"),
        (["translate", "--file", ""], "--file: expected a text file, got no file"),
        (
            ["translate", "--file", __file__, "--output", "no/where"],
            "--output: expected a file in a folder, got no folder",
        ),
        (["info", "bert-base", "--model", "nowhere"], "name, --model: expected one of them"),
        (["translate", "--file", "a", "text"], "expected one of them, got both"),
        (["export", "nowhere"], "expected the folder of a run"),
    ],
)
def test_bad_input_says_what_is_wrong_and_writes_nothing(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command_here(*arguments)
    assert done.returncode == 2
    message = done.stderr.decode()
    assert message.startswith("tf-transformer: ") and said in message
    assert message.count("\n") == 1 and "Traceback" not in message
    assert list(tmp_path.iterdir()) == []


def test_a_broken_model_is_named(run, tmp_path):
    """Weights that are NaN, as after a training that diverged, give a clear error."""
    model = shutil.copytree(run[0] / "saved_model", tmp_path / "model")
    variables = str(model / "variables" / "variables")
    stored = tf.train.load_checkpoint(variables)
    values = {name: stored.get_tensor(name) for name in stored.get_variable_to_shape_map()}
    values["weights/0/.ATTRIBUTES/VARIABLE_VALUE"] *= np.float32("nan")
    tf.raw_ops.SaveV2(
        prefix=variables,
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    done = command_here("translate", "--model", model, "hello")
    message = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b""
    assert message.startswith("tf-transformer: ") and message.count("\n") == 1
    assert "expected numbers, got NaN" in message
    assert message.endswith("produces such logits. Found at step (from 0): 0\n")
