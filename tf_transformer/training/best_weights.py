"""A callback that keeps the best weights."""

import contextlib
from pathlib import Path

import keras

from tf_transformer.training.replacing import replacing


class BestWeights(keras.callbacks.Callback):
    """Keeps the weights of the best epoch, and stops when none gets better.

    `keras.callbacks.ModelCheckpoint` and `EarlyStopping` in one, so that the two cannot
    disagree, with files that are written beside and renamed, and a state that can be resumed.
    Where the optimizer keeps a moving average of the weights (`use_ema`), the average is saved.

    Args:
        path: str or Path, ends in `.weights.h5`.
        monitor: str, what is to become small.
        patience: int or None, how many epochs without a better one end the training.

    Example:
        >>> callbacks = [BestWeights("best.weights.h5", patience=3)]
    """

    def __init__(self, path, monitor="val_loss", patience=None):
        super().__init__()
        self.path = Path(path)
        self.monitor = monitor
        self.patience = patience
        self.best = float("inf")
        self.wait = 0

    def on_epoch_end(self, epoch, logs=None):
        if logs[self.monitor] < self.best:
            with replacing(self.path) as beside, averaged(self.model):
                self.model.save_weights(beside)
            self.best, self.wait = float(logs[self.monitor]), 0
            return
        self.wait += 1
        if self.patience is not None and self.wait >= self.patience:
            self.model.stop_training = True


@contextlib.contextmanager
def averaged(model):
    """Let a model have the moving average of its weights for a while, if its optimizer keeps one.

    Polyak and Juditsky 1992; the average stands for the decay of the learning rate that a short
    training has no time for.

    Args:
        model: a compiled `keras.Model`.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.Adam(use_ema=True))
        >>> with averaged(model):
        ...     weights = model.get_weights()
    """
    optimizer = getattr(model, "optimizer", None)
    if not (optimizer and optimizer.use_ema and optimizer.built):
        yield
        return
    own = [variable.numpy() for variable in model.trainable_variables]
    try:
        optimizer.finalize_variable_values(model.trainable_variables)
        yield
    finally:
        for variable, value in zip(model.trainable_variables, own, strict=True):
            variable.assign(value)
