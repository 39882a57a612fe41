"""The last checkpoints and their mean."""

import keras
import numpy as np
import pytest

from tf_transformer.training import LastWeights, average_weights

pytestmark = pytest.mark.one_of(3, "core")


def model():
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    made.compile(keras.optimizers.SGD(0.1), "mse")
    return made


X, Y = np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32)


class Record(keras.callbacks.Callback):
    """Records the weights after every epoch."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(self.model.get_weights())


def test_the_mean_of_the_last_epochs(tmp_path):
    trained, record, last = model(), Record(), LastWeights(tmp_path / "last", 3)
    trained.fit(X, Y, epochs=11, callbacks=[record, last], verbose=0)
    assert [path.name for path in last.paths] == [
        f"epoch-{number:04}.weights.h5" for number in (9, 10, 11)
    ]
    average_weights(trained, last.paths)
    for actual, *parts in zip(trained.get_weights(), *record.weights[-3:], strict=True):
        np.testing.assert_allclose(actual, np.mean(parts, axis=0, dtype=np.float64), rtol=1e-7)
        assert np.abs(actual - parts[-1]).max() > 1e-3


def test_a_resumed_training_goes_on_with_what_is_there(tmp_path):
    trained, last = model(), LastWeights(tmp_path, 3)
    trained.fit(X, Y, epochs=2, callbacks=[last], verbose=0)
    trained.fit(X, Y, initial_epoch=1, epochs=4, callbacks=[LastWeights(tmp_path, 3)], verbose=0)
    assert [path.name[6:10] for path in last.paths] == ["0002", "0003", "0004"]


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="count: expected at least 1, got 0"):
        LastWeights(tmp_path, 0)
    with pytest.raises(ValueError, match="paths: expected at least one weights file"):
        average_weights(model(), [])
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
    other.save_weights(tmp_path / "other.weights.h5")
    with pytest.raises(ValueError, match="shape"):
        average_weights(model(), [tmp_path / "other.weights.h5"])
