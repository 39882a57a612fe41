"""Callbacks that keep what a training must not lose: the best weights, and the way on."""

import json
import zipfile
from pathlib import Path

import keras
import numpy as np

from tf_transformer.training.replacing import replacing


class BestWeights(keras.callbacks.Callback):
    """Keeps the weights of the best epoch, and stops when none gets better.

    `keras.callbacks.ModelCheckpoint` and `EarlyStopping` in one, so that the two cannot
    disagree, with files that are written beside and renamed, and a state that can be resumed.

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
            with replacing(self.path) as beside:
                # `replacing` keeps the last suffix only, and Keras insists on both.
                file = beside.with_name(f"{beside.stem}.weights.h5")
                self.model.save_weights(file)
                file.rename(beside)
            self.best, self.wait = float(logs[self.monitor]), 0
            return
        self.wait += 1
        if self.patience is not None and self.wait >= self.patience:
            self.model.stop_training = True


class ResumeCheckpoint(keras.callbacks.Callback):
    """Saves at the end of every epoch all that is needed to go on as if nothing had happened.

    Weights, optimizer, step, random seeds of the dropout, and the state of `BestWeights`. The
    position in the data follows from the optimizer's step, so a checkpoint written in the middle
    of an epoch (`save`, after an interrupt) resumes at that very batch.

    Args:
        path: str or Path of the `.npz` file.
        best: a `BestWeights`, whose state is saved too.

    Raises:
        ValueError: on `restore`, a file that is truncated or belongs to another model.

    Example:
        >>> best = BestWeights("best.weights.h5")
        >>> callbacks = [best, ResumeCheckpoint("resume.npz", best)]
    """

    def __init__(self, path, best):
        super().__init__()
        self.path = Path(path)
        self.best = best

    def on_epoch_end(self, epoch, logs=None):
        self.save()

    def save(self):
        """Write the checkpoint now."""
        arrays = {f"{i:04}": np.asarray(v) for i, v in enumerate(_variables(self.model))}
        state = {"best": self.best.best, "wait": self.best.wait}
        with replacing(self.path) as beside, open(beside, "wb") as file:
            np.savez(file, state=json.dumps(state), **arrays)

    def restore(self, model):
        """Load the checkpoint into a built and compiled model.

        Args:
            model: `keras.Model` of the same architecture and optimizer.

        Returns:
            int, the number of optimizer steps done.
        """
        try:
            with np.load(self.path) as file:
                arrays = {name: file[name] for name in file.files}
        except (zipfile.BadZipFile, EOFError, ValueError) as error:
            raise ValueError(
                f"{self.path}: expected a whole checkpoint, got a damaged file ({error}). "
                f"Delete it to begin anew."
            ) from error
        state = json.loads(str(arrays.pop("state")))
        variables = _variables(model)
        saved = [arrays[name].shape for name in sorted(arrays)]
        expected = [tuple(variable.shape) for variable in variables]
        if saved != expected:
            raise ValueError(
                f"{self.path}: expected the checkpoint of a model with {len(expected)} variables "
                f"of the same shapes, got {len(saved)} of other shapes. It belongs to another "
                f"model or version: delete it to begin anew."
            )
        for variable, name in zip(variables, sorted(arrays), strict=True):
            variable.assign(arrays[name])
        self.best.best, self.best.wait = state["best"], state["wait"]
        return int(model.optimizer.iterations)


def _variables(model):
    """All that training changes: weights, dropout seeds, optimizer. Metrics start anew."""
    return [*model.variables, *model.optimizer.variables]
