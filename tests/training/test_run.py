"""A training that was stopped ends as if it had not been."""

import csv
import json

import keras
import numpy as np
import pytest
from small_run import small_run

from tf_transformer.training import BestWeights, TrainingRun


class StopAt(keras.callbacks.Callback):
    """Ctrl-C in the middle of an epoch."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt


def weights(model):
    return [np.asarray(variable) for variable in model.weights]


@pytest.fixture(autouse=True)
def one_thread_order(monkeypatch):
    """Sums in a fixed order, or two equal trainings would differ in the last bits."""
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    yield
    tf.config.experimental.disable_op_determinism()


def test_stopped_and_resumed_equals_straight_through(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    straight = small_run(tmp_path / "a", epochs=3).train()
    stopped = small_run(tmp_path / "b", epochs=3)
    with pytest.raises(KeyboardInterrupt):
        stopped.train([StopAt(epoch=1, batch=2)])
    resumed = TrainingRun.open(stopped.folder).train()
    for ours, theirs in zip(weights(resumed), weights(straight), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with open(stopped.folder / "history.csv", encoding="utf-8") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1", "2"]
    # Nothing left to do: the third call only loads the best weights.
    again = TrainingRun.open(stopped.folder).train()
    np.testing.assert_array_equal(weights(again)[0], weights(resumed)[0])


def test_a_damaged_checkpoint_is_refused(tmp_path):
    run = small_run(tmp_path, epochs=1)
    run.train()
    checkpoint = run.folder / "resume.npz"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(ValueError, match="expected a whole checkpoint, got a damaged file"):
        TrainingRun.open(run.folder).train()


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    run = small_run(tmp_path, epochs=1)
    run.train()
    settings = json.loads((run.folder / "run.json").read_text())
    settings["preset"]["num_layers"] = 2
    (run.folder / "run.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="belongs to another model or version"):
        TrainingRun.open(run.folder).train()


def test_folders_that_hold_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run.json"):
        TrainingRun.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99, "version": "9.9"}')
    with pytest.raises(ValueError, match="expected format 1, got 99, written by version 9.9"):
        TrainingRun.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": ')
    with pytest.raises(ValueError, match="expected the settings of a run"):
        TrainingRun.open(tmp_path)


def test_best_weights_keeps_the_best_and_stops(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    best = BestWeights(tmp_path / "best.weights.h5", patience=2)
    best.set_model(model)
    kept = None
    for epoch, loss in enumerate((3.0, 2.0, 2.5, 2.4)):
        assert not model.stop_training
        model.set_weights([np.full((1, 1), epoch), np.zeros(1)])
        if loss == 2.0:
            kept = model.get_weights()
        best.on_epoch_end(epoch, {"val_loss": loss})
    assert model.stop_training and best.best == 2.0
    model.load_weights(best.path)
    np.testing.assert_array_equal(model.get_weights()[0], kept[0])


def test_a_full_disk_costs_no_checkpoint(tmp_path, monkeypatch):
    run = small_run(tmp_path, epochs=1)
    run.train()
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    longer = TrainingRun(run.folder, run.source, run.preset.with_changes({"epochs": 2}))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        longer.train()
    assert (run.folder / "resume.npz").read_bytes() == before["resume.npz"]
    assert {path.name for path in run.folder.iterdir()} == set(before)
