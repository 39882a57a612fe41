"""A callback that keeps the best weights."""

import math
from pathlib import Path

import keras

from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError
from tf_transformer.training.callbacks.save_weights import save_weights


class BestWeights(keras.callbacks.Callback):
    """Saves the weights of the best epoch and stops training when there is no improvement.

    Combines `keras.callbacks.ModelCheckpoint` and `EarlyStopping`, so that the two cannot disagree.
    Files are written to a temporary name and renamed, and the state can be resumed.

    Args:
        path: str or Path, ends in `.weights.h5`.
        monitor: str, the quantity to minimise; the sum of several if they are joined by `+`.
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
