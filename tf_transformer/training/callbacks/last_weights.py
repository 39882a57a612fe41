"""The weights of the last epochs and their mean."""

from pathlib import Path

import keras
import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.training.callbacks.save_weights import load_weights, save_weights


class LastWeights(keras.callbacks.Callback):
    """Saves the weights of the last epochs, for `average_weights`.

    Files are named `epoch-0007.weights.h5`, numbered from 1, written to a temporary name and
    renamed; older ones are deleted. A resumed training keeps the existing files.

    Args:
        folder: str or Path, created if missing.
        count: int, the number of epochs.

    Raises:
        ValueError: If `count` is below 1.

    Example:
        >>> callbacks = [LastWeights("run/last", count=10)]
    """

    def __init__(self, folder, count=10):
        super().__init__()
        if count < 1:
            raise ArgumentError("count", "at least 1", count)
        self.folder = Path(folder)
        self.count = count

    @property
    def paths(self):
        """The existing files, oldest first."""
        return sorted(self.folder.glob("epoch-*.weights.h5"))

    def on_epoch_end(self, epoch, logs=None):
        self.folder.mkdir(parents=True, exist_ok=True)
        save_weights(self.model, self.folder / f"epoch-{epoch + 1:04}.weights.h5")
        for path in self.paths[: -self.count]:
            path.unlink()


def average_weights(model, paths):
    """Set a model's weights to the mean of several checkpoints.

    "Attention Is All You Need", section 6.1, which averages the last 5 or 20; summed in float64.

    Args:
        model: `keras.Model`, built.
        paths: files written by `save_weights`, of models of the same sizes.

    Raises:
        ValueError: If there is no file, or a file belongs to a different model.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> for number, value in enumerate([1.0, 4.0]):
        ...     model.set_weights([np.full((1, 1), value), np.zeros(1)])
        ...     model.save_weights(f"{number}.weights.h5")
        >>> average_weights(model, ["0.weights.h5", "1.weights.h5"])
        >>> float(model.get_weights()[0][0, 0])
        2.5
    """
    paths = list(paths)
    if not paths:
        raise ArgumentError("paths", "at least one weights file", "none")
    sums = [np.zeros(weight.shape, np.float64) for weight in model.weights]
    for path in paths:
        load_weights(model, path)
        for total, weight in zip(sums, model.get_weights(), strict=True):
            total += weight
    model.set_weights([total / len(paths) for total in sums])
