"""A callback that keeps the best weights."""

import math
from pathlib import Path

import keras

from tf_transformer.data.replacing import replacing


class BestWeights(keras.callbacks.Callback):
    """Keeps the weights of the best epoch, and stops when none gets better.

    `keras.callbacks.ModelCheckpoint` and `EarlyStopping` in one, so that the two cannot
    disagree, with files that are written beside and renamed, and a state that can be resumed.

    Args:
        path: str or Path, ends in `.weights.h5`.
        monitor: str, what is to become small.
        patience: int or None, how many epochs without a better one end the training.
        average: None, or the `MovingAverage` of the training: then the average is saved.

    Raises:
        ValueError: what is monitored is not finite.

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
        if not math.isfinite(logs[self.monitor]):
            raise ValueError(
                f"{self.monitor}: expected a finite number after epoch {epoch + 1}, got "
                f"{logs[self.monitor]}: the training diverged. Begin anew with a lower rate."
            )
        if logs[self.monitor] < self.best:
            self._save()
            self.best, self.wait = float(logs[self.monitor]), 0
            return
        self.wait += 1
        if self.is_exhausted:
            self.model.stop_training = True

    @property
    def is_exhausted(self):
        """Whether the patience is over, in a resumed training too."""
        return self.patience is not None and self.wait >= self.patience

    def _save(self):
        if self.average:
            self.average.swap_in()
        try:
            with replacing(self.path) as beside:
                self.model.save_weights(beside)
        finally:
            if self.average:
                self.average.swap_out()
