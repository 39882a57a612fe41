"""The average is that of the last epochs, and is kept only where it is better."""

import keras
import numpy as np
import pytest
from small_run import small_run

from tf_transformer.training import BestWeights, EpochAverage, TrainingRun


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])


def test_the_last_epochs_are_averaged(model, tmp_path):
    average = EpochAverage(tmp_path / "epochs", epochs=3)
    average.set_model(model)
    rng = np.random.default_rng(0)
    drawn = [(rng.normal(size=(2, 3)), rng.normal(size=3)) for _ in range(12)]
    for epoch, weights in enumerate(drawn):  # past 9, where names could sort wrongly
        model.set_weights(weights)
        average.on_epoch_end(epoch)
    assert sorted(path.name for path in average.folder.iterdir()) == [
        f"epoch-{number:03}.weights.h5" for number in (10, 11, 12)
    ]
    average.assign(model)
    for value, *last in zip(model.get_weights(), *drawn[-3:], strict=True):
        np.testing.assert_allclose(value, np.mean(last, axis=0), atol=1e-6)


def test_it_goes_on_from_the_files_of_an_earlier_process(model, tmp_path):
    for epoch in range(2):
        average = EpochAverage(tmp_path, epochs=5)
        average.set_model(model)
        model.set_weights([np.full((2, 3), epoch), np.zeros(3)])
        average.on_epoch_end(epoch)
    average.assign(model)
    assert np.all(model.get_weights()[0] == 0.5)


def test_no_epoch_is_named(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="expected weights of epochs, got none"):
        EpochAverage(tmp_path).assign(model)


@pytest.mark.parametrize("is_better", [True, False])
def test_a_run_keeps_the_better_one(tmp_path, monkeypatch, capsys, is_better):
    def pretend(self, epoch, logs=None):
        on_epoch_end(self, epoch, logs)
        self.best = float("inf") if is_better else 0.0  # what the average is compared with

    on_epoch_end = BestWeights.on_epoch_end
    monkeypatch.setattr(BestWeights, "on_epoch_end", pretend)
    run = small_run(tmp_path, epochs=3)
    trained = run.train().get_weights()
    assert "average of the last" in capsys.readouterr().out
    stored = TrainingRun.open(run.folder).best_model()
    for ours, kept in zip(trained, stored.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, kept)
    average = run.best_model()
    EpochAverage(run.folder / "epochs").assign(average)
    equal = all(
        np.array_equal(ours, mean)
        for ours, mean in zip(trained, average.get_weights(), strict=True)
    )
    assert equal == is_better
