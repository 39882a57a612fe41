"""Callbacks that keep weights: the best, the last, their average."""

import math
from pathlib import Path

import keras
import numpy as np

from tf_transformer.data.files import replacing
from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError

OVERHEAD = 2**16  # bytes of an HDF5 file, and for each variable another 2**12


def save_weights(model, path):
    """Write a model's weights to a file, which is replaced at the end.

    HDF5 ends the process with a segmentation fault some time after it met a full disk. So the space
    is checked before.
    """
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    size = OVERHEAD + sum(
        2**12 + variable.value.dtype.size * math.prod(variable.shape) for variable in variables
    )
    with replacing(path, size=size) as beside:
        model.save_weights(beside)


def load_weights(model, path):
    """Read what `save_weights` wrote."""
    try:
        model.load_weights(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # HDF5 and Keras raise many kinds for a damaged file
        raise ArgumentError(
            "path",
            "whole weights of this model",
            f"a damaged file or those of another model: {error}",
            place=path,
        ) from error


class MovingAverage(keras.callbacks.Callback):
    """Replaces the weights with their moving average during validation.

    average <- m * average + (1 - m) * weights after every step (Polyak and Juditsky, 1992), kept by
    the optimizer (`use_ema=True`, m = `ema_momentum`). It substitutes for the learning rate decay
    that a short training has no time for; the paper averages its last checkpoints for the same
    reason (section 6.1). `keras.callbacks.SwapEMAWeights` swaps the two by adding and subtracting,
    which rounds; here the weights are restored bit for bit.

    Raises:
        ValueError: If the optimizer keeps no average when training begins.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(use_ema=True, ema_momentum=0.9), "mse")
        >>> x = np.ones((4, 1))
        >>> history = model.fit(
        ...     x, x, validation_data=(x, x), callbacks=[MovingAverage()], verbose=0
        ... )
    """

    def __init__(self):
        super().__init__()
        self._own = None

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        if not getattr(optimizer, "inner_optimizer", optimizer).use_ema:  # that of a loss scale
            raise ArgumentError(
                "optimizer",
                "one that averages the weights",
                "use_ema=False",
                "Compile with keras.optimizers.Adam(..., use_ema=True, ema_momentum=0.998).",
            )

    def on_test_begin(self, logs=None):
        self.swap_in()

    def on_test_end(self, logs=None):
        self.swap_out()

    def swap_in(self):
        """Replace the weights with the average, unless this is already done."""
        if self._own is None:
            variables = self.model.trainable_variables
            self._own = [variable.numpy() for variable in variables]
            self.model.optimizer.finalize_variable_values(variables)

    def swap_out(self):
        """Restore the weights, unless this is already done."""
        if self._own is not None:
            for variable, value in zip(self.model.trainable_variables, self._own, strict=True):
                variable.assign(value)
            self._own = None


class BestWeights(keras.callbacks.Callback):
    """Saves the weights of the best epoch and stops training when there is no improvement.

    Combines `keras.callbacks.ModelCheckpoint` and `EarlyStopping`, so that the two cannot disagree.
    Files are written to a temporary name and renamed, and the state can be resumed.

    Args:
        path: str or Path, ends in `.weights.h5`.
        monitor: str, the quantity to minimize; the sum of several if they are joined by `+`.
        patience: int or None, the number of epochs without improvement before training stops.
        average: None, or the `MovingAverage` of the training, to save the averaged weights.

    Raises:
        ValueError: If the monitored quantity is not finite.

    Example:
        >>> callbacks = [BestWeights("best.weights.h5", patience=3)]
    """

    def __init__(self, path, monitor="val_loss", patience=None, average=None):
        super().__init__()
        self.path = Path(path)
        self.monitor = monitor
        self.patience = patience
        self.average = average
        self.best = float("inf")
        self.wait = 0

    def on_epoch_end(self, epoch, logs=None):
        value = float(sum(logs[name] for name in self.monitor.split("+")))
        if not math.isfinite(value):
            raise ArgumentError(
                self.monitor,
                f"a finite number after epoch {epoch + 1}",
                f"{value}: the training diverged",
                "Restart with a lower rate.",
            )
        if value < self.best:
            if current_workers().is_chief:
                self._save()
            self.best, self.wait = value, 0
            return
        self.wait += 1
        if self.is_exhausted:
            self.model.stop_training = True

    @property
    def is_exhausted(self):
        """Whether the patience is exhausted, also after resuming."""
        return self.patience is not None and self.wait >= self.patience

    def _save(self):
        if self.average:
            self.average.swap_in()
        try:
            save_weights(self.model, self.path)
        finally:
            if self.average:
                self.average.swap_out()


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
