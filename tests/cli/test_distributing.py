"""Several processes of the command train together, stop together and resume."""

import json
import signal
import socket
import subprocess
import time

import pytest
from command_line import ENVIRONMENT, START, command_here
from small_pretraining import write_topics
from tiny_bert import WORDS, tiny_folder

from tf_transformer.training import TrainingRun

pytestmark = pytest.mark.one_of(10, "long")
HANGS = 600  # seconds, also when other tests run beside two workers on two slow cores


class Processes:
    """Two workers that run one command, or resume the training of its folder."""

    def __init__(self, folder, *command, folders=None):
        with socket.socket() as one, socket.socket() as other:
            for free in (one, other):
                free.bind(("localhost", 0))
            ports = [free.getsockname()[1] for free in (one, other)]
        cluster = {"worker": [f"localhost:{port}" for port in ports]}
        begun = (folder / "run.json").exists()
        self.folder, self.processes = folder, []
        for index, output in enumerate(folders or (folder, folder)):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": cluster, "task": task})
            process = subprocess.Popen(
                [*START, *(("train", "--resume") if begun else (*command, "--output")), output],
                env={**ENVIRONMENT, "TF_CONFIG": config, "TF_NUM_INTRAOP_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self.processes.append(process)

    def wait_for_an_epoch(self):
        for _ in range(10 * HANGS):
            if (self.folder / "best.weights.h5").exists():
                return
            if any(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.1)
        for process in self.processes:
            process.kill()
        pytest.fail(f"no epoch has ended: {self.ends()}")

    def ends(self):
        """The exit codes and what was written to standard error and output."""
        try:
            outputs = [process.communicate(timeout=HANGS) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        codes = [process.returncode for process in self.processes]
        return codes, [err.decode() for _, err in outputs], [out.decode() for out, _ in outputs]


def shorten(folder):
    settings = json.loads((folder / "run.json").read_text())
    settings["preset"]["epochs"] = 1
    (folder / "run.json").write_text(json.dumps(settings))


def training(pairs, *options):
    return ("train", "--tsv", pairs, "--preset", "tiny", "--deterministic", *options)


@pytest.mark.whole
def test_two_workers_train_and_the_chief_exports(pairs, tmp_path):
    folder = tmp_path / "run"
    codes, errors, outputs = Processes(folder, *training(pairs, "--epochs", "2")).ends()
    assert codes == [0, 0] and errors == ["", ""], errors
    assert "BLEU" in outputs[0] and outputs[1] == ""
    assert (folder / "saved_model" / "translator.json").is_file()
    rows = (folder / "history.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "0", "1"]
    assert TrainingRun.open(folder).best_model()


@pytest.mark.whole
def test_two_workers_pretrain_and_fine_tune(tmp_path):
    text = write_topics(tmp_path / "topics.txt")
    folder, options = tmp_path / "pretrained", ("--lengths", "16", "--vocab-size", "99")
    ended = Processes(folder, "pretrain", "--text", text, "--preset", "tiny", *options).ends()
    codes, errors, outputs = ended
    assert codes == [0, 0] and errors == ["", ""], errors
    assert "masked words and next sentences" in outputs[0] and outputs[1] == ""
    data = tmp_path / "data.tsv"
    data.write_text("".join(f"{'ab'[x in 'film']}\t{x} {y}\n" for x in WORDS for y in WORDS))
    model, folder = tiny_folder(tmp_path / "model"), tmp_path / "classifier"
    settings = ("--batch-size", "5", "--max-length", "9", "--early-exit", "1")
    command = ("finetune", "--model", model, "--train", data, *settings)
    codes, errors, outputs = Processes(folder, *command).ends()
    assert codes == [0, 0] and errors == ["", ""], errors
    assert '"early_exit"' in outputs[0] and outputs[1] == ""
    assert len((folder / "history.csv").read_text().splitlines()) == 6
    done = command_here("classify", "--model", folder, "film film")
    assert done.returncode == 0 and done.stdout.endswith(b"\tfilm film\n")


@pytest.mark.one_of(10)
@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_worker_is_stopped_and_all_resume(pairs, tmp_path, number):
    folder = tmp_path / "run"
    running = Processes(folder, *training(pairs, "--epochs", "500"))
    running.wait_for_an_epoch()
    start = time.monotonic()
    running.processes[1].send_signal(number)
    codes, errors, _ = running.ends()
    assert time.monotonic() - start < 60
    assert f"Resume with: tf-transformer train --resume {folder}" in errors[0]
    if number == signal.SIGTERM:
        assert codes == [143, 143]
    else:
        assert codes == [1, -signal.SIGKILL]
        assert "tf-transformer: workers: expected all 2 until the end, lost one (" in errors[0]
    shorten(folder)
    codes, errors, outputs = Processes(folder).ends()
    assert codes == [0, 0] and errors == ["", ""], errors and "BLEU" in outputs[0]


@pytest.mark.parametrize(
    "command",
    ["train", *(pytest.param(x, marks=pytest.mark.whole) for x in ("train-lm", "pretrain"))],
)
def test_workers_without_a_shared_folder_end_before_they_train(pairs, tmp_path, command):
    data = ("--tsv", pairs) if command == "train" else ("--text", write_topics(tmp_path / "text"))
    folders = [tmp_path / "of the chief", tmp_path / "of the other"]
    started = Processes(folders[0], command, *data, "--preset", "tiny", folders=folders)
    codes, errors, outputs = started.ends()
    assert codes == [2, 2] and errors[0] == errors[1] and outputs == ["", ""]
    assert errors[0].startswith(
        "tf-transformer: --output: expected one folder that all 2 workers share"
    )
    assert not any(folder.exists() for folder in folders)


def test_bad_input(pairs, tmp_path, monkeypatch):
    arguments = ["train", "--tsv", pairs, "--preset", "tiny", "--output", tmp_path / "run"]
    done = command_here(*arguments, "--distribute", "mirored")
    assert done.returncode == 2
    assert b"--distribute: expected one of auto, none, mirrored, workers, tpu, got" in done.stderr
    monkeypatch.setenv("TF_CONFIG", "{}")
    done = command_here(*arguments, "--distribute", "workers")
    assert done.returncode == 2 and b"TF_CONFIG: expected JSON like" in done.stderr
    assert list(tmp_path.iterdir()) == []
