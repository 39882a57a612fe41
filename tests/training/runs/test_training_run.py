"""An interrupted training run ends with the same result as an uninterrupted one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from small_run import small_run

from tf_transformer.training import BestWeights, TrainingRun

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run of one epoch that is complete."""
    run = small_run(tmp_path_factory.mktemp("trained"), epochs=1)
    run.train()
    return run


@pytest.fixture
def run(trained, tmp_path):
    """Return a copy of the trained run that a test may modify."""
    shutil.copytree(trained.folder, tmp_path / "run")
    return TrainingRun(tmp_path / "run", trained.source, trained.preset)


@pytest.mark.fault
def test_stopped_and_resumed_equals_straight_through(tmp_path):
    folders = [str(SUPPORT.parents[1]), str(SUPPORT)]
    done = subprocess.run(
        [sys.executable, SUPPORT / "resume_program.py", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("translation", "pretraining", "language model"):
        assert f"{kind} equal\n" in done.stdout


def test_a_damaged_checkpoint_is_refused(run):
    checkpoint = run.folder / "resume.npz"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(ValueError, match="expected a complete checkpoint, got a damaged file"):
        TrainingRun.open(run.folder).train()


def test_a_checkpoint_of_another_model_is_refused(run):
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
    model.stop_training = False  # as fit does
    kept = None
    for epoch, loss in enumerate((3.0, 2.0, 2.5, 2.4)):
        assert not model.stop_training
        model.set_weights([np.full((1, 1), epoch), np.zeros(1)])
        if loss == 2.0:
            kept = model.get_weights()
        best.on_epoch_end(epoch, {"val_loss": loss})
    assert model.stop_training and best.best == 2.0 and best.is_exhausted
    model.load_weights(best.path)
    np.testing.assert_array_equal(model.get_weights()[0], kept[0])


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_training_that_diverged_stops(tmp_path, loss):
    best = BestWeights(tmp_path / "best.weights.h5")
    with pytest.raises(ValueError, match="val_loss: expected a finite number after epoch 3"):
        best.on_epoch_end(2, {"val_loss": loss})
    assert not best.path.exists()


def test_a_full_disk_costs_no_checkpoint(run, monkeypatch):
    checkpoint = run.folder / "resume.npz"
    before, names = checkpoint.read_bytes(), set(run.folder.iterdir())
    longer = TrainingRun(run.folder, run.source, run.preset.with_changes({"epochs": 2}))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        longer.train()
    assert checkpoint.read_bytes() == before
    assert set(run.folder.iterdir()) == names


def test_a_run_whose_patience_is_over_trains_no_further(run):
    with np.load(run.folder / "resume.npz") as file:
        arrays = dict(file)
    arrays["state"] = json.dumps({**json.loads(str(arrays["state"])), "wait": 1})
    np.savez(run.folder / "resume.npz", **arrays)  # the tiny preset has a patience of 1
    before = (run.folder / "resume.npz").read_bytes()
    TrainingRun(run.folder, run.source, run.preset.with_changes({"epochs": 9})).train()
    assert (run.folder / "resume.npz").read_bytes() == before
