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

from tf_transformer import Architecture, BPETokenizer, GlobalLossScale, Tokenizer
from tf_transformer.training import BestWeights, RDrop, TrainingRun, get_preset
from tf_transformer.training.runs import run as run_module

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


@pytest.mark.slow
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


def newest(run):
    return max((run.folder / "checkpoints").iterdir())


@pytest.mark.slow
def test_damaged_checkpoints_are_refused(run):
    for checkpoint in (run.folder / "checkpoints").iterdir():
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(ValueError, match="expected an intact checkpoint, got damaged files only"):
        TrainingRun.open(run.folder).train()


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="expected format 2, got 99, written by version 9.9"):
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


def test_best_weights_of_a_sum(tmp_path):
    best = BestWeights(tmp_path / "best.weights.h5", monitor="val_a+val_b")
    best.set_model(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    for epoch, (a, b) in enumerate([(3.0, 1.0), (1.0, 2.0), (0.5, 2.75)]):
        best.on_epoch_end(epoch, {"val_a": a, "val_b": b})
    assert (best.best, best.wait) == (3.0, 1)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_training_that_diverged_stops(tmp_path, loss):
    best = BestWeights(tmp_path / "best.weights.h5")
    with pytest.raises(ValueError, match="val_loss: expected a finite number after epoch 3"):
        best.on_epoch_end(2, {"val_loss": loss})
    assert not best.path.exists()


@pytest.mark.slow
def test_a_full_disk_costs_no_checkpoint(run, monkeypatch):
    checkpoint = newest(run)
    before, names = checkpoint.read_bytes(), set(run.folder.iterdir())
    longer = TrainingRun(run.folder, run.source, run.preset.with_changes({"epochs": 2}))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        longer.train()
    assert checkpoint.read_bytes() == before
    assert set(run.folder.iterdir()) == names


@pytest.mark.slow
def test_a_run_whose_patience_is_over_trains_no_further(run):
    class Worse(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["val_token_loss"] = 99.0  # what chooses the best weights

    longer = TrainingRun(run.folder, run.source, run.preset.with_changes({"epochs": 9}))
    longer.train([Worse()])  # the tiny preset has a patience of 1
    before = newest(run).read_bytes()
    longer.train()
    assert newest(run).name == "epoch-00002-step-00000000.npz"
    assert newest(run).read_bytes() == before


def rows(batches):
    """The pairs of an epoch."""
    return sum(int(labels.any(-1).sum()) for _, labels in batches.epoch(0))


@pytest.mark.slow
def test_settings_of_the_optimizer_r_drop_and_precision(trained, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "tf_transformer.training.runs.run.resumable_fit",
        lambda *arguments, **_: seen.append(arguments),
    )
    monkeypatch.setattr("tf_transformer.training.runs.run._SHORT", 12)  # some pairs
    shutil.copytree(trained.folder, tmp_path / "run")
    changes = {"beta_2": 0.875, "r_drop": 2.0, "precision": "mixed_float16", "short_repeats": 9}
    run = TrainingRun(tmp_path / "run", trained.source, trained.preset.with_changes(changes))
    model = run.train()
    assert model.dtype_policy.name == keras.config.dtype_policy().name == "float32"
    [(fitted, batches, validation, _)] = seen
    tokenizer = Tokenizer.load(run.tokenizer_path)
    once, held_out = (
        rows(trained.batches(tokenizer, part)) for part in (run.split.train, run.split.validation)
    )
    assert rows(batches) > once and rows(validation) == held_out
    assert isinstance(fitted, RDrop) and fitted.alpha == 2.0
    assert fitted.model.dtype_policy.name == "mixed_float16"
    assert isinstance(fitted.optimizer, GlobalLossScale)
    assert fitted.optimizer.inner_optimizer.beta_2 == 0.875
    again = TrainingRun.open(run.folder).preset
    assert (again.beta_2, again.r_drop, again.precision) == (0.875, 2.0, "mixed_float16")
    assert again.short_repeats == 9


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_training_with_r_drop_in_half_precision_goes_on_after_an_interrupt(tmp_path, precision):
    run = small_run(tmp_path)
    changes = {"r_drop": 1.0, "precision": precision}
    run = TrainingRun(run.folder, run.source, run.preset.with_changes(changes))

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.train([Interrupt()])
    run.train()
    rows = (run.folder / "history.csv").read_text().splitlines()[1:]
    losses = [float(row.split(",")[-1]) for row in rows]
    assert len(losses) == 2 and losses[1] < losses[0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"beta_2": 1.0}, r"beta_2: expected a number in \(0, 1\), got 1.0"),
        ({"r_drop": -1.0}, "r_drop: expected a number of at least 0, got -1.0"),
        ({"short_repeats": 0}, "short_repeats: expected at least 1, got 0"),
        ({"short_repeats": 1.5}, "short_repeats: expected a whole number, got 1.5"),
        ({"precision": "float16"}, "precision: expected one of float32, .*, mixed_float16, got 'f"),
    ],
)
def test_a_preset_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        get_preset("tiny").with_changes(changes)


def test_an_epoch_repeats_pairs_with_short_targets(tmp_path):
    run = small_run(tmp_path)
    tokenizer = BPETokenizer.train([*"abcde"], vocab_size=300)
    pairs = [("abcdea", "abcd"), ("b", "abcde"), ("ab", "c")]

    def rows(repeats):
        epoch = run.batches(tokenizer, pairs, repeats).epoch(0)
        targets = [row for _, labels in epoch for row in labels.tolist() if any(row)]
        return sorted(tokenizer.decode([row[: row.index(tokenizer.end_id)] for row in targets]))

    assert rows(1) == ["abcd", "abcde", "c"]
    assert rows(3) == ["abcd"] * 3 + ["abcde"] + ["c"] * 3


def test_an_architecture_without_choices_is_the_papers():
    preset = get_preset("tiny").with_changes({"architecture": {}})
    assert preset.new_architecture() == Architecture()
    assert preset.architecture == Architecture().to_dict()
    assert get_preset("tiny").new_architecture() is None


@pytest.mark.slow
def test_training_accumulates_as_the_preset_says_and_other_compilations_do_not(run, monkeypatch):
    parts = []
    monkeypatch.setattr(run_module, "accumulate_gradients", lambda _, count: parts.append(count))
    run.preset = run.preset.with_changes({"accumulate": 3})
    run.train()
    assert parts == [3]
    run.compile(run.best_model(), 1e-3)  # as a recipe does, with a teacher
    assert parts == [3]
