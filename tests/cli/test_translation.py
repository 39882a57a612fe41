"""The translation commands: output, output files and exit codes."""

import gzip
import json
import signal
import subprocess
import sys
import time

import pytest
from command_line import ENVIRONMENT, ROOT, START, command, command_here


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Return a file of 300 pairs."""
    from tf_transformer.data import load_corpus

    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [f"{source}\t{target}\n" for source, target in load_corpus("en-fr")[:300]]
    file.write_text("".join(lines), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def run(pairs, tmp_path_factory):
    """Train once; return the run's folder and the completed process."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    done = command("train", "--tsv", pairs, "--preset", "tiny", "--output", folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder, done


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
    for name in (b"train", b"translate", b"evaluate", b"export", b"info"):
        assert name in done.stdout


def test_train_scores_exports_and_translates(run):
    folder, done = run
    out = done.stdout.decode()
    assert "BLEU" in out and "tok:13a" in out and "chrF" in out
    assert "batch shapes" in out and f"Model: {folder / 'saved_model'}" in out
    assert done.stderr == b""
    assert (folder / "saved_model" / "README.md").is_file()
    assert (folder / "saved_model" / "attention.svg").read_text("utf-8").startswith("<svg")


@pytest.mark.parametrize("subword", ["wordpiece", "unigram"])
def test_other_subword_models_train_and_translate(pairs, tmp_path, subword):
    folder = tmp_path / "run"
    arguments = ["--tsv", pairs, "--preset", "tiny", "--subword", subword, "--vocab-size", "300"]
    done = command_here("train", *arguments, "--output", folder)
    assert done.returncode == 0, done.stderr.decode()
    assert b"BLEU" in done.stdout and done.stderr == b""
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    assert tokenizer["model"]["type"].lower() == subword
    assert len(tokenizer["model"]["vocab"]) == 300
    info = json.loads(command_here("info", "--model", folder).stdout.decode().split("\n", 1)[1])
    assert f"--subword {subword} --vocab-size 300" in info["command"]
    again = command_here("translate", "--model", folder, "Tom is here.")
    assert again.returncode == 0 and again.stdout.count(b"\n") == 1


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


def test_an_exported_model_is_exported_again(run, tmp_path):
    folder, _ = run
    model, again = tmp_path / "model", tmp_path / "again"
    assert command_here("export", folder, "--output", model, "--min-length", "2").returncode == 0
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
    # A rule that changes the greedy translations makes `export` score them again.
    third = command_here("export", again, "--output", again, "--min-length", "3")
    assert third.returncode == 0 and b"BLEU" in third.stdout
    refused = command_here("export", model)
    assert refused.returncode == 2 and b"--output: expected a folder" in refused.stderr


def test_runs_become_an_ensemble(run, pairs, tmp_path):
    folder, _ = run
    other, model = tmp_path / "other", tmp_path / "model"
    arguments = ("--tsv", pairs, "--preset", "tiny", "--seed", "2", "--output", other)
    assert command_here("train", *arguments).returncode == 0
    done = command_here("export", folder, other, "--output", model)
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
    alone = command_here("export", folder, other)
    assert alone.returncode == 2 and b"--output: expected a folder for the ensemble" in alone.stderr


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
    assert command_here("train", "--resume", "first").returncode == 0


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


def test_info_evaluate_and_export(run, tmp_path):
    folder, _ = run
    info = command("info", "--model", folder)
    description = json.loads(info.stdout.decode().split("\n", 1)[1])
    assert description["command"].startswith("tf-transformer train --tsv")
    scores = json.loads(command("evaluate", "--model", folder).stdout)
    assert scores == description["scores"]
    exported = command("export", folder, "--output", tmp_path / "model")
    assert exported.returncode == 0
    again = command_here("info", tmp_path / "model").stdout.decode().split("\n", 1)[1]
    assert json.loads(again) == description


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


def test_a_run_goes_on_from_another_folder(run, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(pairs.parent)
    arguments = ["--tsv", pairs.name, "--preset", "tiny", "--output", tmp_path / "run"]
    assert command_here("train", *arguments).returncode == 0
    monkeypatch.chdir(tmp_path)
    done = command_here("export", "run")
    assert done.returncode == 0, done.stderr.decode()


def test_a_byte_order_mark_is_no_text_and_gzip_is_refused(run, tmp_path):
    folder, _ = run
    file, packed = tmp_path / "lines.txt", tmp_path / "lines.gz"
    file.write_bytes(b"\xef\xbb\xbfHi you\n")
    packed.write_bytes(gzip.compress(b"Hi you\n"))
    plain = command_here("translate", "--model", folder, "Hi you").stdout
    assert command_here("translate", "--model", folder, "--file", file).stdout == plain
    assert command("translate", "--model", folder, stdin=file.read_bytes()).stdout == plain
    done = command_here("translate", "--model", folder, "--file", packed)
    assert done.returncode == 2 and b"is gzipped; unpack it: gunzip" in done.stderr


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
        (["translate", "--file", "nowhere"], "expected a text file, but there is no file nowhere"),
        (["translate", "--file", ""], "--file: expected a text file, but there is no file"),
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
    from tf_transformer.export import Translator
    from tf_transformer.export.translation.saved_translator import read_description, save_translator
    from tf_transformer.tokenizers import GraphTokenizer
    from tf_transformer.training import TrainingRun

    training = TrainingRun.open(run[0])
    model = training.best_model()
    model.weights[0].assign(model.weights[0] * float("nan"))
    translator = Translator(model, GraphTokenizer.from_file(training.tokenizer_path))
    save_translator(translator, tmp_path / "model", read_description(run[0] / "saved_model"))
    done = command_here("translate", "--model", tmp_path / "model", "hello")
    message = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b""
    assert message.startswith("tf-transformer: ") and message.count("\n") == 1
    assert "expected numbers, got NaN" in message and "at step (from 0)] [0]" in message


def test_rules_are_exported(run, tmp_path):
    rules = ["--min-length", "3", "--no-repeat-ngram", "1", "--length-limit", "0", "4"]
    done = command_here("export", run[0], "--output", tmp_path / "model", *rules)
    assert done.returncode == 0, done.stderr.decode()
    settings = json.loads((tmp_path / "model" / "translator.json").read_text("utf-8"))["decoding"]
    assert settings["min_length"] == 3 and settings["length_limit"] == [0, 4]
    refused = command_here("export", run[0], "--output", tmp_path / "other", "--min-length", "-1")
    assert refused.returncode == 2 and b"--min-length: expected at least 0" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_a_finished_run_is_not_overwritten(run, pairs):
    folder, _ = run
    done = command("train", "--tsv", pairs, "--preset", "tiny", "--output", folder)
    assert done.returncode == 2 and b"--resume" in done.stderr
    assert done.stderr.startswith(b"tf-transformer: ") and done.stderr.count(b"\n") == 1


@pytest.mark.fault
def test_ctrl_c_saves_and_says_how_to_go_on(pairs, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [
            *START,
            "train",
            "--tsv",
            pairs,
            "--preset",
            "tiny",
            "--epochs",
            "500",
            "--output",
            folder,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        # Background jobs of a shell ignore SIGINT, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(600):
        if (folder / "resume.npz").exists() or process.poll() is not None:
            break
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"tf-transformer train --resume {folder}" in stderr.decode()
    settings = json.loads((folder / "run.json").read_text())
    settings["preset"]["epochs"] = 1
    (folder / "run.json").write_text(json.dumps(settings))
    done = command("train", "--resume", folder)
    assert done.returncode == 0 and b"BLEU" in done.stdout
