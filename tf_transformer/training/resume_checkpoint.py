"""A callback that saves everything needed to resume training."""

import hashlib
import json
import operator
import sys
import time
import zipfile
from pathlib import Path

import keras
import numpy as np

from tf_transformer.data.files import replacing
from tf_transformer.distribution import current_workers
from tf_transformer.errors import ArgumentError
from tf_transformer.json_text import parse_json


class ResumeCheckpoint(keras.callbacks.Callback):
    """Saves everything needed to resume training exactly.

    This includes weights, optimizer, loss scale, learning rate, dropout seeds, the position in the
    data, the metrics of an unfinished epoch (which are restored if they are built before `fit`, as
    by `evaluate`) and the state of `BestWeights`. Files are named
    `epoch-00003-step-00000120.npz` by the position, from 0, are replaced atomically and contain a
    checksum. If the newest one is damaged, the one before it is used.

    Args:
        folder: str or Path of the files, created if missing.
        best: a `BestWeights`, whose state is also saved.
        keep: int, the number of newest files to keep.
        seconds: float; a checkpoint is saved at the end of every epoch, and after a step if this
            much time has passed since the last one.

    Raises:
        ValueError: On `save`, if a weight is not finite; on `restore`, if no file is intact or they
            belong to a different model; if `keep` is below 1 or `seconds` is negative.

    Example:
        >>> from tf_transformer.training import BestWeights
        >>> best = BestWeights("best.weights.h5")
        >>> callbacks = [best, ResumeCheckpoint("checkpoints", best)]
    """

    def __init__(self, folder, best, keep=2, seconds=600.0):
        super().__init__()
        if keep < 1:
            raise ArgumentError("keep", "at least 1", keep)
        if not seconds >= 0:
            raise ArgumentError("seconds", "at least 0", seconds)
        self.folder, self.best = Path(folder), best
        self.keep, self.seconds = keep, seconds
        self.position = 0, 0  # epoch, number of its finished steps
        self._metrics = None  # values of an unfinished epoch
        self._saved_at = time.monotonic()

    @property
    def paths(self):
        """The existing files, oldest first."""
        return sorted(self.folder.glob("epoch-*-step-*.npz"))

    def on_epoch_begin(self, epoch, logs=None):
        if epoch != self.position[0]:
            self.position = epoch, 0
        if self._metrics is not None:  # `fit` has just set them to 0
            variables = self.model.metrics_variables
            if len(variables) == len(self._metrics):  # otherwise not built, or different
                for variable, value in zip(variables, self._metrics, strict=True):
                    variable.assign(value)
            self._metrics = None

    def on_train_batch_begin(self, batch, logs=None):
        # Not at the end: a callback before this one may stop the training there.
        self.position = self.position[0], self.position[1] + 1

    def on_train_batch_end(self, batch, logs=None):
        is_last = batch + 1 == self.params["steps"]  # validation and history come first
        if not is_last and time.monotonic() - self._saved_at >= self.seconds:
            self.save()

    def on_epoch_end(self, epoch, logs=None):
        self.position = epoch + 1, 0
        self.save()

    def save(self):
        """Write a checkpoint now, between two steps; only the chief of several `Workers` does."""
        if not current_workers().is_chief:
            return
        epoch, step = self.position
        arrays = {f"{i:04}": _stored(v) for i, v in enumerate(_variables(self.model))}
        if step:
            metrics = self.model.metrics_variables if self._metrics is None else self._metrics
            arrays |= {f"metric-{i:04}": _stored(v) for i, v in enumerate(metrics)}
        if not all(np.isfinite(v).all() for v in arrays.values() if v.dtype.kind == "f"):
            expected = f"finite numbers after step {step} of epoch {epoch + 1}"
            got = "NaN or infinity: the training diverged"
            raise ArgumentError("weights", expected, got, "The checkpoints before are kept.")
        state = {"epoch": epoch, "step": step}
        state |= {name: getattr(self.best, name) for name in ("best", "wait", "monitor")}
        arrays["state"] = np.array(json.dumps(state))
        path = self.folder / f"epoch-{epoch:05}-step-{step:08}.npz"
        with replacing(path) as beside, open(beside, "wb") as file:
            np.savez(file, **arrays, checksum=_checksum(arrays))
        for old in self.paths[: -self.keep]:
            old.unlink()
        self._saved_at = time.monotonic()

    def restore(self, model):
        """Load the newest intact checkpoint into a compiled model; return its (epoch, step)."""
        workers = current_workers()
        if workers.is_chief:
            self._restore(model)
        if workers.count > 1:
            self._share(model, workers)
        return self.position

    def _restore(self, model):
        arrays = self._newest()
        path, state = arrays.pop("path"), arrays.pop("state")
        variables = _variables(model)
        metrics = [arrays.pop(name) for name in sorted(arrays) if name.startswith("metric")]
        saved = [(arrays[name].shape, arrays[name].itemsize) for name in sorted(arrays)]
        expected = [(tuple(v.shape), v.value.dtype.size) for v in variables]
        if saved != expected:
            wanted = f"the checkpoint of a model with {len(expected)} variables of the same shapes"
            remedy = f"It belongs to another model or version: delete {self.folder} to start over."
            got = f"{len(saved)} of other shapes"
            raise ArgumentError("path", wanted, got, remedy, place=path)
        for variable, name in zip(variables, sorted(arrays), strict=True):
            variable.assign(arrays[name].view(variable.value.dtype.as_numpy_dtype))
        self.best.best, self.best.wait = state["best"], state["wait"]
        self.best.monitor = state["monitor"]
        self.position = state["epoch"], state["step"]
        self._metrics = metrics or None

    def _share(self, model, workers):
        """Send what the chief restored to all workers, with different dropout seeds."""
        variables, metrics, best = _variables(model), self._metrics or [], self.best
        own = [self.position, best.best, best.wait, best.monitor, len(metrics)]
        position, best.best, best.wait, best.monitor, count = workers.gather(own)[0]
        self.position = tuple(position)
        metrics = metrics or [np.zeros((), np.float32)] * count
        self._metrics = workers.from_chief(metrics) or None
        values = workers.from_chief([np.asarray(variable) for variable in variables])
        for variable, value in zip(variables, values, strict=True):
            if variable.path.endswith("seed_generator_state"):
                value = value + np.array([workers.index, 0], value.dtype)
            variable.assign(value)

    def _newest(self):
        """Return the arrays of the newest intact file; set damaged files aside with a message."""
        for path in reversed(self.paths):
            arrays = _read(path)
            if arrays is not None:
                return {**arrays, "path": path}
            damaged = path.with_name(f"{path.name}.damaged")
            path.rename(damaged)
            note = "expected a complete checkpoint, got a damaged file. The one before it is used."
            print(f"{damaged}: {note}", file=sys.stderr, flush=True)
        got, remedy = "damaged files only", "Delete the folder to start over."
        raise ArgumentError("folder", "an intact checkpoint", got, remedy, place=self.folder)


def _read(path):
    """Return the arrays of a file, or None if it is damaged."""
    try:
        # Opened explicitly: NumPy leaves its own handle open if the file is damaged.
        with open(path, "rb") as stored, np.load(stored) as file:
            if any(member.compress_type != zipfile.ZIP_STORED for member in file.zip.infolist()):
                return None  # not our file, and possibly much larger in memory
            arrays = {name: file[name] for name in file.files}
        if str(arrays.pop("checksum")) != _checksum(arrays):
            return None
        return {**arrays, "state": _state(str(arrays["state"]))}
    except Exception:  # NumPy and zipfile raise more than they document
        return None


def _state(text):
    """Parse and check `state`."""
    state = parse_json(text)
    counts = {name: operator.index(state[name]) for name in ("epoch", "step", "wait")}
    if min(counts.values()) < 0 or not isinstance(state["monitor"], str):
        raise ArgumentError("state", "numbers of at least 0, and the name of a quantity", text)
    return {**counts, "best": float(state["best"]), "monitor": state["monitor"]}


def _checksum(arrays):
    """Return the SHA-256 of names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _stored(variable):
    """Return the value in a type that NumPy can store: bfloat16 as the integers of its bits."""
    value = np.asarray(variable)
    return value.view(f"u{value.itemsize}") if value.dtype.kind == "V" else value


def _variables(model):
    """Return what training changes: weights, dropout seeds, optimizer. Metrics are reset."""
    return [*model.variables, *model.optimizer.variables]
