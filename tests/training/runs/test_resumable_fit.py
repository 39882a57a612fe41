"""Training with interruptions."""

import csv

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import distribution
from tf_transformer.data.batches import epochs_dataset
from tf_transformer.training import BestWeights, ResumeCheckpoint, resumable_fit

pytestmark = pytest.mark.one_of(3, "core")


class Batches:
    """Three batches per epoch."""

    steps_per_epoch = 3

    def epoch(self, number, first_step):
        for step in range(first_step, 3):
            yield np.full((2, 1), number + step), np.ones((2, 1))

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        signature = (tf.TensorSpec((2, 1)),) * 2
        return epochs_dataset(self, signature, first_epoch, first_step, epochs)


class StopAt(keras.callbacks.Callback):
    """Raises KeyboardInterrupt after a given step of an epoch."""

    def __init__(self, epoch, step):
        super().__init__()
        self.at = (epoch, step)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt


def fit(folder, epochs, metrics=(), **options):
    """The number of steps of the best model, and its weights."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse", metrics=list(metrics))
    model.optimizer.build(model.trainable_variables)
    resumable_fit(model, Batches(), Batches(), folder, epochs=epochs, **options)
    return int(model.optimizer.iterations), model.get_weights()


def test_parts_are_the_whole(tmp_path):
    assert fit(tmp_path / "parts", 2)[0] == 6
    steps, weights = fit(tmp_path / "parts", 5)
    expected_steps, expected = fit(tmp_path / "whole", 5)
    assert steps == expected_steps == 15
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_resumed_training_keeps_what_is_best(tmp_path):
    error = keras.metrics.MeanAbsoluteError(name="error")
    fit(tmp_path, 2, [error], monitor="val_error")
    fit(tmp_path, 4, [error])
    with open(tmp_path / "history.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
    best = BestWeights("none")
    found = ResumeCheckpoint(tmp_path / "checkpoints", best)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    model.optimizer.build(model.trainable_variables)
    found.restore(model)
    assert best.monitor == "val_error"
    assert np.isclose(best.best, min(float(row["val_error"]) for row in rows))


@pytest.mark.parametrize("epochs", [2, 3])
@pytest.mark.one_of(4)
def test_an_earlier_part_leaves_a_later_one_alone(tmp_path, epochs):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, 5, callbacks=[StopAt(3, 1)])
    paths = sorted((tmp_path / "checkpoints").iterdir())
    before = [path.read_bytes() for path in paths]
    fit(tmp_path, epochs)
    assert [path.read_bytes() for path in paths] == before
    assert fit(tmp_path, 5)[0] == 15


def test_other_data_are_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, 5, callbacks=[StopAt(3, 1)])

    class Fewer(Batches):
        steps_per_epoch = 2

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    model.optimizer.build(model.trainable_variables)
    with pytest.raises(ValueError, match="expected the data with which the run began, of at least"):
        resumable_fit(model, Fewer(), Batches(), tmp_path, epochs=5)


def test_an_optimizer_that_would_part_the_workers_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(distribution, "_current", distribution.Workers(0, 2))
    with pytest.raises(ValueError, match="optimizer: expected FusedAdam, .* of all 2 .* got SGD"):
        fit(tmp_path / "run", 1)
    assert not (tmp_path / "run").exists()
