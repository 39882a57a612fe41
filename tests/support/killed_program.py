"""Kill a training at random moments, again and again, and compare it with one that was not.

`python killed_program.py FOLDER KILLS SEED`. Prints one line of JSON. Each training is a process
of its own, forked from this one before TensorFlow has computed anything, which saves the import.
"""

import functools
import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from small_run import small_run

from tf_transformer.training import ResumeCheckpoint, TrainingRun

STEPS = 16  # of an epoch of the small run
STEP = 0.02  # seconds, roughly, with its checkpoint


class Log(keras.callbacks.Callback):
    """Appends epoch, step and loss of every step to a file, which survives the process."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        with open(self.path, "a") as file:
            file.write(f"{self.epoch} {step} {logs['loss']!r} {logs['accuracy']!r}\n")


def train(folder, epochs):
    """Train or resume in a new process: its number. A checkpoint follows every step."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        tf.config.experimental.enable_op_determinism()
        module = importlib.import_module("tf_transformer.training.resume_checkpoint")
        module.ResumeCheckpoint = functools.partial(ResumeCheckpoint, seconds=0)
        exists = (folder / "run" / "run.json").exists()
        run = TrainingRun.open(folder / "run") if exists else small_run(folder, epochs=epochs)
        model = run.train([Log(folder / "log")])
        np.savez(folder / "final.npz", *(np.asarray(v) for v in model.weights))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait(process):
    """The exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def is_saving(folder):
    """Whether a file is being written beside the one that it replaces."""
    return any(folder.glob("run/**/.*.new.*"))


def stop_inside_a_save(process, folder):
    """Stop a training inside a save, so that a kill finds it there."""
    while True:
        if os.waitpid(process, os.WNOHANG)[0]:
            raise SystemExit("the training ended before it saved")
        if is_saving(folder):
            os.kill(process, signal.SIGSTOP)
            os.waitpid(process, os.WUNTRACED)
            if is_saving(folder):
                return
            os.kill(process, signal.SIGCONT)  # the save was over


def killed(folder, epochs, kills, rng):
    """Train with so many kills; how many came inside a save."""
    log, inside = folder / "log", 0
    log.touch()
    most = STEP * STEPS * epochs / kills  # seconds after the first step: not all steps are used up
    for number in range(kills):
        process, before = train(folder, epochs), log.stat().st_size
        if number % 5 == 0:
            time.sleep(rng.uniform(0, 4))  # before or while it begins
        else:
            while log.stat().st_size == before:
                if os.waitpid(process, os.WNOHANG)[0]:
                    raise SystemExit(f"the training ended before kill {number + 1}")
                time.sleep(0.001)
            if number % 5 == 1:
                stop_inside_a_save(process, folder)
            else:
                time.sleep(rng.uniform(0, most))
        os.kill(process, signal.SIGKILL)
        wait(process)
        inside += is_saving(folder)
    return inside


def history(folder):
    return (folder / "run" / "history.csv").read_text()


def main(folder, kills, seed):
    straight, other = Path(folder) / "straight", Path(folder) / "killed"
    epochs = max(4, kills // 4)
    for path in (straight, other):
        path.mkdir(parents=True)
    if wait(train(straight, epochs)):
        raise SystemExit("the training failed")
    inside = killed(other, epochs, kills, random.Random(seed))
    if wait(train(other, epochs)):
        raise SystemExit("the training failed after the kills")
    expected = {tuple(line.split()[:2]): line for line in (straight / "log").open()}
    lines = [line for line in (other / "log").open() if line.endswith("\n")]
    equal = sum(line == expected[tuple(line.split()[:2])] for line in lines)
    with np.load(straight / "final.npz") as one, np.load(other / "final.npz") as two:
        weights = all(np.array_equal(one[name], two[name]) for name in one.files)
    result = {
        "kills": kills,
        "inside a save": inside,
        "steps": len(expected),
        "steps with repetitions": len(lines),
        "other losses": len(lines) - equal,
        "weights equal": weights,
        "history equal": history(straight) == history(other),
        "left over": sorted(str(path) for path in other.glob("run/**/.*")),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
