"""Training that can be stopped at any batch and resumed, and the checkpoints for it."""

import functools
import hashlib
import json
import operator
import sys
import time
import zipfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.files import replacing
from tf_transformer.distribution import WorkerShare, current_workers, lost_workers_named
from tf_transformer.errors import ArgumentError, check
from tf_transformer.json_text import parse_json
from tf_transformer.training.callbacks import (
    BestWeights,
    InterruptBetweenBatches,
    StopOnNaN,
    load_weights,
)
from tf_transformer.training.optimizers import FusedAdam, GlobalLossScale


def resumable_fit(
    model,
    batches,
    validation,
    folder,
    *,
    epochs,
    monitor="val_loss",
    patience=None,
    average=None,
    callbacks=(),
):
    """Train until the last epoch or until the patience is exhausted; resume an interrupted run.

    Writes to the folder:

    best.weights.h5     the weights of the best epoch, see `monitor`
    checkpoints/        everything needed to resume, see `ResumeCheckpoint`
    history.csv         losses and metrics of every epoch

    A training that is killed at any moment and resumed has the same losses and weights as an
    uninterrupted one, bit for bit where the operations are deterministic (on a CPU,
    `tf.config.experimental.enable_op_determinism()`). With several `Workers`, each trains on its
    share of every batch, and the chief writes the files.

    Args:
        model: `keras.Model`, built and compiled with a built optimizer; it ends with the best
            weights.
        batches, validation: objects with `steps_per_epoch` and `dataset(first_epoch, first_step,
            epochs)`, such as `BucketedBatches`.
        folder: str or Path.
        epochs: int, total number of epochs; a run that is already past it is not trained further.
        monitor: str, see `BestWeights`; "val_loss" depends on how the validation data are batched,
            but "val_token_loss", with the metric `TokenCrossentropy`, does not. A resumed training
            keeps its original `monitor`.
        patience: int or None, see `BestWeights`.
        average: None, or `MovingAverage` to validate and save the averaged weights.
        callbacks: further Keras callbacks.

    Raises:
        KeyboardInterrupt: On Ctrl-C or SIGTERM, after the checkpoint is written.
        OSError: If the disk is full; the earlier checkpoints are then kept.
        ConnectionError: If one of several workers is lost.
        ArgumentError: On all workers, if they do not share the folder, or differ in epochs, steps
            or model.
        ValueError: If the loss is not finite, see `StopOnNaN`; if all checkpoints are damaged or
            belong to a different model or other data; if an optimizer of Keras has several workers.

    Example:
        >>> from tf_transformer.data import LanguageModelBatches
        >>> from tf_transformer.training import SmoothedCrossentropy
        >>> sizes = {"lengths": (4,), "tokens_per_batch": 4}
        >>> batches = LanguageModelBatches([[5, 6]], start_id=1, end_id=2, **sizes)
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Embedding(7, 7)])
        >>> model.compile("sgd", SmoothedCrossentropy())
        >>> model.optimizer.build(model.trainable_variables)
        >>> resumable_fit(model, batches, batches, "run", epochs=1)
        1/1...
    """
    folder = Path(folder)
    workers = current_workers()
    if workers.count > 1 and not isinstance(model.optimizer, FusedAdam | GlobalLossScale):
        which = f"which add up the gradients of all {workers.count} workers"
        expected = f"FusedAdam, LayerwiseAdamW or GlobalLossScale, {which}"
        raise ArgumentError("optimizer", expected, type(model.optimizer).__name__)
    steps = batches.steps_per_epoch
    if workers.count > 1:
        shapes = [list(variable.shape) for variable in model.variables]
        counts = [steps, validation.steps_per_epoch]
        workers.agree(folder, epochs=epochs, steps=counts, model=shapes)
    best = BestWeights(folder / "best.weights.h5", monitor, patience, average)
    checkpoint = ResumeCheckpoint(folder / "checkpoints", best)
    checkpoint.set_model(model)  # Keras would do this, but an interrupt may come before
    if workers.count * tf.distribute.get_strategy().num_replicas_in_sync > 1:
        batches, validation = WorkerShare(batches), WorkerShare(validation)
    if workers.is_chief and not checkpoint.paths:
        checkpoint.save()
    epoch, step = checkpoint.restore(model)
    if step >= steps:
        expected = f"the data with which the run began, of at least {step + 1} batches"
        raise ArgumentError("folder", expected, f"{steps} batches", place=checkpoint.folder)
    histories = [_history(folder / "history.csv", epoch)] if workers.is_chief else []
    averages = [average] if average else []
    interrupt = InterruptBetweenBatches()
    try:
        if not best.is_exhausted:
            with interrupt, lost_workers_named():
                stop = StopOnNaN(checkpoint, batches)
                callbacks = [*callbacks, stop, *histories, *averages, best, checkpoint, interrupt]
                _fit(model, batches, validation, epochs, checkpoint, callbacks)
    except KeyboardInterrupt:
        if average:
            average.swap_out()
        # After the last batch of an epoch there is no position yet: its validation is missing.
        if not interrupt.is_torn and checkpoint.position[1] < steps:
            checkpoint.save()
        if not interrupt.is_torn:
            workers.leave()
        raise
    finally:
        for history in histories:
            # Keras closes it only on normal completion. Before 3.11 the attribute does not exist
            # until training begins.
            if getattr(history, "csv_file", None) is not None:
                history.csv_file.close()
    workers.leave()  # the chief has written the file
    load_weights(model, best.path)


def _history(path, epochs):
    """Return a callback that continues the table after some epochs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():  # a killed run may have written the epoch that is repeated
        lines = path.read_text("utf-8").splitlines(keepends=True)
        with replacing(path) as beside:
            beside.write_text("".join(lines[: epochs + 1] if epochs else []), "utf-8")
    else:
        path.unlink(missing_ok=True)  # a dangling link, which would be followed
    return keras.callbacks.CSVLogger(path, append=True)


def _fit(model, batches, validation, epochs, checkpoint, callbacks):
    steps = batches.steps_per_epoch
    epoch, step = checkpoint.position
    fit = functools.partial(
        model.fit,
        validation_data=validation.dataset(epochs=1),
        callbacks=callbacks,
        # The progress bar redraws itself on a terminal; in a log it would be one long line.
        verbose=(1 if sys.stdout.isatty() else 2) if current_workers().is_chief else 0,
        shuffle=False,
    )
    if step and epoch < epochs:  # the rest of the epoch that was interrupted
        # Builds the metrics, whose values the checkpoint restores.
        model.evaluate(validation.dataset(epochs=1).take(1), verbose=0)
        rest = batches.dataset(epoch, step, epochs=1)
        fit(rest, initial_epoch=epoch, epochs=epoch + 1, steps_per_epoch=steps - step)
        # `fit` ends with the weights replaced by their average.
        epoch, _ = checkpoint.restore(model)
    if epoch < epochs and not model.stop_training:
        fit(batches.dataset(epoch), initial_epoch=epoch, epochs=epochs, steps_per_epoch=steps)


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
        check(keep >= 1, "keep", "at least 1", keep)
        check(seconds >= 0, "seconds", "at least 0", seconds)
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
