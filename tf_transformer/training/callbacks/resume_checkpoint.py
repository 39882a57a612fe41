"""A callback that saves everything needed to resume training."""

import json
import zipfile
from pathlib import Path

import keras
import numpy as np

from tf_transformer.data.replacing import replacing


class ResumeCheckpoint(keras.callbacks.Callback):
    """Saves everything needed to resume training exactly, at the end of every epoch.

    This includes weights, optimizer, step, dropout seeds and the state of `BestWeights`. The
    position in the data follows from the optimizer's step, so a checkpoint written in the middle
    of an epoch (`save`, after an interrupt) resumes at the next batch.

    Args:
        path: str or Path of the `.npz` file.
        best: a `BestWeights`, whose state is also saved.

    Raises:
        ValueError: On `restore`, if the file is truncated or belongs to a different model.

    Example:
        >>> from tf_transformer.training import BestWeights
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
            # Opened explicitly: NumPy leaves its own handle open if the file is damaged.
            with open(self.path, "rb") as stored, np.load(stored) as file:
                arrays = {name: file[name] for name in file.files}
            state = json.loads(str(arrays.pop("state")))
        except (zipfile.BadZipFile, EOFError, ValueError, KeyError) as error:
            raise ValueError(
                f"{self.path}: expected a complete checkpoint, got a damaged file ({error}). "
                f"Delete it to start over."
            ) from error
        variables = _variables(model)
        saved = [arrays[name].shape for name in sorted(arrays)]
        expected = [tuple(variable.shape) for variable in variables]
        if saved != expected:
            raise ValueError(
                f"{self.path}: expected the checkpoint of a model with {len(expected)} variables "
                f"of the same shapes, got {len(saved)} of other shapes. It belongs to another "
                f"model or version: delete it to start over."
            )
        for variable, name in zip(variables, sorted(arrays), strict=True):
            variable.assign(arrays[name])
        self.best.best, self.best.wait = state["best"], state["wait"]
        return int(model.optimizer.iterations)


def _variables(model):
    """Everything that training changes: weights, dropout seeds, optimizer. Metrics are reset."""
    return [*model.variables, *model.optimizer.variables]
