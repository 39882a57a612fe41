"""Several processes compute what one computes on the whole batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.training.scale import free_ports
from tf_transformer.distribution import Workers, current_workers, start_distribution

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.whole)])
def test_losses_are_those_of_one_process(tmp_path, count):
    """Unequal padding, global clipping, R-Drop and a moving average, 50 steps."""
    check_losses("translate", tmp_path, count)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_losses_of_bert_are_those_of_one_process(tmp_path, kind, count):
    """Next sentences and exits; a batch with fewer rows than workers."""
    check_losses(kind, tmp_path, count)


def check_losses(kind, folder, count):
    found = outcome("workers_program.py", kind, folder, count, 50)
    assert found["workers"] == count and found["steps"] == 50
    assert found["same on all"] and found["same weights on all"]
    assert found["largest difference of a loss"] < 1e-5
    assert found["largest difference of an accuracy"] < 0.01  # a near tie may go another way
    first, last = found["first and last loss"]
    assert last < {"translate": 0.8, "pretrain": 0.95, "finetune": 0.99}[kind] * first
    alone, *others = found["after an overflow"]
    assert all(other == alone for other in others)
    assert alone[0] == 4.0 and 0.7 < alone[1] < 0.9  # of three steps of 0.1 one was skipped


@pytest.mark.slow
def test_what_differs_between_workers_ends_all_of_them_with_one_message(tmp_path):
    processes = []
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config), "PYTHONPATH": str(ROOT)}
        call = [sys.executable, str(SUPPORT / "agreeing_program.py"), str(tmp_path)]
        processes.append(subprocess.Popen(call, env=environment, stdout=subprocess.PIPE))
    chief, other = (json.loads(p.communicate(timeout=200)[0].splitlines()[-1]) for p in processes)
    text = ["ArgumentError", "x: expected a file, got none. Copy it."]
    assert chief["an argument"] == other["an argument"] == text
    assert chief["a file"] == ["OSError", "p.tsv: expected a file, got none."]
    assert other["a file"] == ["FileNotFoundError", chief["a file"][1]]
    assert chief["a bug"] == ["RuntimeError", "worker 1: KeyError: 'weights'"]
    assert other["a bug"] == ["KeyError", "'weights'"]
    for name in ("gathered", "all", "no folder", "folder", "preset", "data", "versions", "sum"):
        assert chief[name] == other[name], name
    assert chief["gathered"] == [["", 0], ["中", 1]]
    assert chief["all"] is None and chief["no folder"] is None and chief["sum"]
    assert chief["folder"] == [
        "ArgumentError",
        f"folder: expected one folder that all 2 workers share, got the chief's "
        f"{tmp_path / '0' / 'run'}, which worker 1 does not see. Choose a folder of a file system "
        f"that all machines share.",
    ]
    for name in ("preset", "data", "versions"):
        assert chief[name] == [
            "ArgumentError",
            f"{name}: expected the same on all 2 workers, got other values on worker 1 than on the "
            f"chief. Start all with the same command, files and packages.",
        ]
    assert "OSError" in other["unwritable"][0] and other["unwritable"][1] == chief["unwritable"][1]
    assert chief["left"] == []


@pytest.mark.slow
def test_replicas_on_one_machine_compute_the_same(tmp_path):
    found = outcome("mirrored_program.py", tmp_path)
    one, two = (np.array(found[name]) for name in ("one", "two"))
    np.testing.assert_allclose(two[:, 0], one[:, 0], rtol=1e-5)
    # Of a step Keras shows the mean over replicas; of a validation that over tokens. A near tie may
    # go another way.
    np.testing.assert_allclose(two[9::10, 1], one[9::10, 1], atol=0.01)
    assert found["resumed"]
    np.testing.assert_allclose(*found["r_drop"], rtol=1e-5)
    np.testing.assert_allclose(*found["parts"], rtol=1e-5)  # of a batch, one after another


def outcome(program, *arguments):
    folders = [str(SUPPORT.parents[1]), str(SUPPORT)]
    done = subprocess.run(
        [sys.executable, SUPPORT / program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_one_process_needs_no_others():
    workers = current_workers()
    assert (workers.index, workers.count, workers.is_chief) == (0, 1, True)
    arrays = [np.arange(3), np.float32(2)]
    assert workers.from_chief(arrays) is arrays and workers.any(True) and not workers.any(None)
    [total] = workers.sum([tf.constant([1.0, 2.0])])
    np.testing.assert_array_equal(total, [1.0, 2.0])


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{",
        "[]",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_a_wrong_tf_config(monkeypatch, text):
    if text is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG: expected JSON like .*, got"):
        Workers.start()
    assert current_workers().count == 1


def test_what_is_chosen(monkeypatch):
    with pytest.raises(ValueError, match="distribute: expected one of auto, none, .* got 'multi'"):
        start_distribution("multi")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}}')  # one worker is none
    for kind in ("none", "auto"):
        with start_distribution(kind):
            assert tf.distribute.get_strategy().num_replicas_in_sync == 1
    with start_distribution("mirrored"):
        assert isinstance(tf.distribute.get_strategy(), tf.distribute.MirroredStrategy)
    started = []
    monkeypatch.setattr(Workers, "start", lambda: started.append(1))
    start_distribution("workers")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}}')
    start_distribution()
    assert len(started) == 2
