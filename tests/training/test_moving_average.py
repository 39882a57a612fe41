"""The average replaces the weights during validation, and only then."""

import keras
import numpy as np
import pytest
from small_run import small_run

from tf_transformer.training import BestWeights, MovingAverage, TrainingRun

MOMENTUM = 0.7


class Watch(keras.callbacks.Callback):
    """Records the weights after every step and during every validation."""

    def __init__(self):
        super().__init__()
        self.steps, self.validations, self.after = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(self.model.get_weights())

    def on_test_batch_end(self, batch, logs=None):
        self.validations.append(self.model.get_weights())

    def on_epoch_end(self, epoch, logs=None):
        self.after.append(self.model.get_weights())


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=MOMENTUM)
    model.compile(optimizer, "mse")
    return model


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 2)), rng.normal(size=(20, 3))


def test_validation_and_best_weights_are_the_averages(model, data, tmp_path):
    average, watch = MovingAverage(), Watch()
    best = BestWeights(tmp_path / "best.weights.h5", average=average)
    model.fit(
        *data,
        batch_size=5,
        epochs=3,
        validation_data=data,
        validation_batch_size=20,
        callbacks=[average, watch, best],
        verbose=0,
    )
    expected = None  # computed here: the first step's weights, then a share of each
    averages = []
    for n, (kernel, _) in enumerate(watch.steps, start=1):
        expected = kernel if expected is None else MOMENTUM * expected + (1 - MOMENTUM) * kernel
        if n % 4 == 0:
            averages.append(expected)
    for seen, kernel in zip(watch.validations, averages, strict=True):
        np.testing.assert_allclose(seen[0], kernel, atol=1e-6)
    for after, steps in zip(watch.after, watch.steps[3::4], strict=True):
        np.testing.assert_array_equal(after[0], steps[0])  # the weights themselves, exactly
    model.load_weights(best.path)
    np.testing.assert_array_equal(model.get_weights()[0], watch.validations[-1][0])


def test_a_failed_save_leaves_the_weights_in_place(model, data, tmp_path, monkeypatch):
    average = MovingAverage()
    model.fit(*data, epochs=2, verbose=0)
    model.layers[0].kernel.assign_add(np.ones((2, 3)))  # move away from the average
    before = model.get_weights()
    best = BestWeights(tmp_path / "best.weights.h5", average=average)
    average.set_model(model)
    best.set_model(model)

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model, "save_weights", full)
    with pytest.raises(OSError, match="No space left"):
        best.on_epoch_end(0, {"val_loss": 1.0})
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_an_optimizer_without_average_is_named(model, data):
    model.compile(keras.optimizers.SGD(), "mse")
    with pytest.raises(ValueError, match="optimizer: expected one that averages"):
        model.fit(*data, callbacks=[MovingAverage()], verbose=0)


@pytest.mark.slow
def test_stopped_in_a_validation_the_model_has_its_own_weights_and_the_epoch_is_repeated(tmp_path):
    class Stop(Watch):
        def on_test_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    stop = Stop()
    run = small_run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run.train([stop])
    for found, own in zip(stop.model.trainable_variables, stop.steps[-1], strict=True):
        np.testing.assert_array_equal(found, own)
    [checkpoint] = (run.folder / "checkpoints").iterdir()
    assert checkpoint.name == "epoch-00000-step-00000000.npz"
    TrainingRun.open(run.folder).train()
    lines = (run.folder / "history.csv").read_text().splitlines()
    assert [line[0] for line in lines] == ["e", "0", "1"]
