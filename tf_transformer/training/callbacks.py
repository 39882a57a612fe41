"""Callbacks that save the best, last or averaged weights, or stop training."""

import functools
import math
import signal
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.files import replacing
from tf_transformer.distribution import current_workers
from tf_transformer.errors import ArgumentError, check

_SHOWN = 20  # rows of a batch
_LEAST_SCALE = 1e-4  # loss scale, reached after dozens of skipped steps in a row


def save_weights(model, path):
    """Write a model's weights to a file, which is replaced at the end."""
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    # The space, with HDF5's overhead, is checked first: a full disk would crash the process.
    sizes = [2**12 + v.value.dtype.size * math.prod(v.shape) for v in variables]
    with replacing(path, size=2**16 + sum(sizes)) as beside:
        model.save_weights(beside)


def load_weights(model, path):
    """Read the weights that `save_weights` wrote."""
    try:
        model.load_weights(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # HDF5 and Keras raise many kinds for a damaged file
        got = f"a damaged file or weights of another model: {error}"
        raise ArgumentError("path", "intact weights of this model", got, place=path) from error


class MovingAverage(keras.callbacks.Callback):
    """Replaces the weights with their moving average during validation.

    average <- m * average + (1 - m) * weights after every step (Polyak and Juditsky, 1992), kept by
    the optimizer (`use_ema=True`, m = `ema_momentum`); "Attention Is All You Need", section 6.1,
    averages its last checkpoints instead, see `average_weights`. Unlike with
    `keras.callbacks.SwapEMAWeights`, the weights are restored bit for bit. Raises a ValueError if
    the optimizer keeps no average when training begins.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(use_ema=True, ema_momentum=0.9), "mse")
        >>> x, callbacks = np.ones((4, 1)), [MovingAverage()]
        >>> history = model.fit(x, x, validation_split=0.5, callbacks=callbacks, verbose=0)
    """

    def __init__(self):
        super().__init__()
        self._own = None

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        if not getattr(optimizer, "inner_optimizer", optimizer).use_ema:  # inside a loss scale
            remedy = "Compile with keras.optimizers.Adam(..., use_ema=True, ema_momentum=0.998)."
            expected, got = "one that averages the weights", "use_ema=False"
            raise ArgumentError("optimizer", expected, got, remedy)

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

    `keras.callbacks.ModelCheckpoint` and `EarlyStopping` in one, so that the two cannot disagree.
    Files are replaced atomically, and the state can be resumed. Raises a ValueError if the
    monitored quantity is not finite.

    Args:
        path: str or Path, ends in `.weights.h5`.
        monitor: str, the quantity to minimize; the sum of several if they are joined by `+`.
        patience: int or None, epochs without improvement before training stops.
        average: None, or the `MovingAverage` callback, to save the averaged weights.

    Example:
        >>> callbacks = [BestWeights("best.weights.h5", patience=3)]
    """

    def __init__(self, path, monitor="val_loss", patience=None, average=None):
        super().__init__()
        self.path, self.monitor = Path(path), monitor
        self.patience, self.average = patience, average
        self.best, self.wait = float("inf"), 0

    def on_epoch_end(self, epoch, logs=None):
        value = float(sum(logs[name] for name in self.monitor.split("+")))
        if not math.isfinite(value):
            expected = f"a finite number after epoch {epoch + 1}"
            got, remedy = f"{value}: the training diverged", "Restart with a lower rate."
            raise ArgumentError(self.monitor, expected, got, remedy)
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

    Files are named `epoch-0007.weights.h5`, numbered from 1, and replaced atomically; older ones
    are deleted. A resumed training keeps the existing files. Raises a ValueError if `count` is
    below 1.

    Args:
        folder: str or Path, created if missing.
        count: int, the number of epochs, at least 1.

    Example:
        >>> callbacks = [LastWeights("run/last", count=10)]
    """

    def __init__(self, folder, count=10):
        super().__init__()
        check(count >= 1, "count", "at least 1", count)
        self.folder, self.count = Path(folder), count

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
    Raises a ValueError if there is no file, or a file belongs to a different model.

    Args:
        model: `keras.Model`, built.
        paths: files written by `save_weights`, of models of the same sizes.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> for value in (1.0, 4.0):
        ...     model.set_weights([np.full((1, 1), value), np.zeros(1)])
        ...     model.save_weights(f"{value}.weights.h5")
        >>> average_weights(model, ["1.0.weights.h5", "4.0.weights.h5"])
        >>> float(model.get_weights()[0][0, 0])
        2.5
    """
    paths = list(paths)
    check(paths, "paths", "at least one weights file", "none")
    sums = [np.zeros(weight.shape, np.float64) for weight in model.weights]
    for path in paths:
        load_weights(model, path)
        for total, weight in zip(sums, model.get_weights(), strict=True):
            total += weight
    model.set_weights([total / len(paths) for total in sums])


class InterruptBetweenBatches(keras.callbacks.Callback):
    """Context around `fit` and callback: a signal raises `KeyboardInterrupt` only after a batch."""

    # Python raises the exception anywhere: inside a step, only some weights would be updated; in a
    # destructor, it would be printed and ignored. In the last batch of an epoch and its validation,
    # the signal is deferred until the end of the epoch, so that history and weights are not lost.
    # `kill`, Kubernetes and Slurm send SIGTERM before they kill a process.

    def __init__(self):
        super().__init__()
        self._pending = None
        self._handlers = {}
        self.is_torn = False  # by a second signal inside a batch, so that weights must not be saved

    def __enter__(self):
        # Not for signals that the program handles itself or ignores, as background programs may.
        if threading.current_thread() is threading.main_thread():
            usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
            for number, handler in usual.items():
                if signal.getsignal(number) is handler:
                    self._handlers[number] = handler
                    signal.signal(number, self._keep)
        return self

    def __exit__(self, kind, error, traceback):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if kind is None:
            self._raise_if_pending()  # a signal after the last batch

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 != self.params["steps"]:
            self._raise_if_anyones()

    def on_epoch_end(self, epoch, logs=None):
        self._raise_if_anyones()

    def _keep(self, number, frame):
        if self._pending:
            self.is_torn = True
            raise KeyboardInterrupt(number)
        self._pending = number
        note = "Stopping after this batch or validation; press Ctrl-C again to stop immediately."
        print(f"\n{note}", file=sys.stderr, flush=True)

    def _raise_if_anyones(self):
        """When one of several `Workers` gets a signal, all stop after the same batch."""
        workers = current_workers()
        if workers.count == 1:
            self._raise_if_pending()
        elif workers.any(self._pending):  # a signal after this waits for the next batch
            self._pending = self._pending or signal.SIGTERM
            self._raise_if_pending()

    def _raise_if_pending(self):
        if self._pending:
            number, self._pending = self._pending, None
            raise KeyboardInterrupt(number)


class StopOnNaN(keras.callbacks.Callback):
    """Stops training when the loss is NaN or infinite, before anything is saved.

    Steps skipped by a loss scale are ignored, but training also stops when the scale falls below
    1e-4, when no step has finite gradients. To name the first layer whose output is not finite, the
    batch runs again with the weights of the last checkpoint; the error also names the step and the
    rows of its batch.

    Args:
        checkpoint: the `ResumeCheckpoint` of the training, later in the list of callbacks.
        batches: object with `dataset(first_epoch, first_step, epochs)`, such as `BucketedBatches`;
            if it also has `rows(epoch, step)`, the error names the rows.

    Raises:
        ValueError: After a step with such a loss or scale; the model then has the checkpoint's
            weights.

    Example:
        >>> from tf_transformer.training import BestWeights, ResumeCheckpoint
        >>> checkpoint = ResumeCheckpoint("checkpoints", BestWeights("best.weights.h5"))
        >>> callbacks = [StopOnNaN(checkpoint, batches=None), checkpoint]
    """

    def __init__(self, checkpoint, batches):
        super().__init__()
        self.checkpoint, self.batches = checkpoint, batches

    def on_train_batch_end(self, batch, logs=None):
        loss = logs["loss"]  # the mean of the epoch so far
        scale = getattr(self.model.optimizer, "dynamic_scale", None)
        if not math.isfinite(loss):
            name, expected, got = "loss", "a finite number", loss
        elif scale is not None and scale.numpy() < _LEAST_SCALE:
            name, expected, got = "loss scale", f"at least {_LEAST_SCALE}", f"{scale.numpy():.1e}"
        else:
            return
        epoch, step = self.checkpoint.position
        step -= 1
        [again] = self.batches.dataset(epoch, step, epochs=1).take(1)
        x, y, weight = keras.utils.unpack_x_y_sample_weight(again)
        start, start_step = self.checkpoint.restore(self.model)
        got = f"{got} in epoch {epoch + 1}, step {step + 1}{self._rows(epoch, step)}"
        place = f"after {start} epochs and {start_step} steps"
        found = first_not_finite(self.model, x, y, weight)
        remedy = f"With the weights of the last checkpoint, {place}, {found}"
        raise ArgumentError(name, expected, got, remedy)

    def _rows(self, epoch, step):
        if not hasattr(self.batches, "rows"):
            return ""
        rows = [int(row) for row in self.batches.rows(epoch, step)]
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        return f", rows {', '.join(map(str, rows[:_SHOWN]))}{more} of the data"


def first_not_finite(model, x, y, sample_weight=None):
    """Find the first layer whose output is not finite."""
    found = []

    def watch(layer, path):
        call = layer.call

        @functools.wraps(call)  # some layers look at its signature
        def watched(*args, **kwargs):
            outputs = call(*args, **kwargs)
            if not found and not _is_finite(outputs):
                found.append(path)
            return outputs

        object.__setattr__(layer, "call", watched)

    layers = dict(_paths(model, model.name))
    for layer, path in layers.items():
        watch(layer, path)
    try:
        outputs = model(x, training=False)
        loss = model.compute_loss(x, y, outputs, sample_weight)
    finally:
        for layer in layers:
            object.__delattr__(layer, "call")
    if found:
        return f"the layer {found[0]} is the first with a number that is not finite."
    if not _is_finite(loss):
        return f"all layers are finite and the loss is {float(loss)}: look at its labels."
    return "all of it is finite: the training diverged. Start over with a lower rate."


def _paths(layer, path):
    """Yield a layer and its inner layers, with their paths from the model."""
    yield layer, path
    for inner in layer._flatten_layers(recursive=False, include_self=False):
        yield from _paths(inner, f"{path} / {inner.name}")


def _is_finite(outputs):
    tensors = [x for x in tf.nest.flatten(outputs) if tf.is_tensor(x) and x.dtype.is_floating]
    return all(bool(tf.reduce_all(tf.math.is_finite(x))) for x in tensors)
