"""Compare uninterrupted trainings with ones that are stopped and resumed.

A separate program because op determinism cannot be switched off again.
"""

import csv
import functools
import sys
import traceback
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from small_language_model import small_language_model
from small_pretraining import small_pretraining
from small_run import small_run

from tf_transformer import GlobalLossScale
from tf_transformer.training.runs import run as run_module


def float16_run(folder, epochs):
    """A translator whose steps overflow at first, and then now and again."""
    run = small_run(folder, epochs)
    run.preset = run.preset.with_changes({"precision": "mixed_float16"})
    return run


RUNS = {
    "translation": float16_run,
    "pretraining": small_pretraining,
    "language model": small_language_model,
}


class StopAt(keras.callbacks.Callback):
    """Raise KeyboardInterrupt in the middle of an epoch."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt


def weights(model):
    """Return copies of all weights."""
    return [np.asarray(variable) for variable in model.weights]


def compare(folder, make_run):
    """Compare the two trainings bitwise."""
    for name in ("straight", "stopped"):
        (folder / name).mkdir(parents=True)
    straight = make_run(folder / "straight", epochs=3).train()
    stopped = make_run(folder / "stopped", epochs=3)
    try:
        stopped.train([StopAt(epoch=1, batch=2)])
        raise AssertionError("the training was not stopped")
    except KeyboardInterrupt:
        pass
    open_run = type(stopped).open
    resumed = open_run(stopped.folder).train()
    for ours, theirs in zip(weights(resumed), weights(straight), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with open(stopped.folder / "history.csv", encoding="utf-8") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1", "2"]
    # Resuming a complete training only loads the best weights.
    again = open_run(stopped.folder).train()
    np.testing.assert_array_equal(weights(again)[0], weights(resumed)[0])


if __name__ == "__main__":
    tf.config.experimental.enable_op_determinism()
    run_module.GlobalLossScale = functools.partial(
        GlobalLossScale, initial_scale=2.0**24, dynamic_growth_steps=5
    )
    failed = []
    for kind, make_run in RUNS.items():
        keras.utils.clear_session()  # so that layers have the names of a new process
        try:
            compare(Path(sys.argv[1]) / kind, make_run)
            print(f"{kind} equal")
        except Exception:
            traceback.print_exc()
            failed.append(kind)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
