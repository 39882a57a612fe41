"""Callbacks that stop a training: at an interrupt, or at NaN."""

import functools
import math
import signal
import sys
import threading

import keras
import tensorflow as tf

from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError


class InterruptBetweenBatches(keras.callbacks.Callback):
    """Defers Ctrl-C and SIGTERM until the batch is done, then raises `KeyboardInterrupt`.

    Python raises it wherever the program happens to be. In the middle of a step this leaves some
    weights updated and others not; in a destructor the exception is printed and ignored, and
    training continues. During the last batch of an epoch and its validation, the signal is deferred
    until the end of the epoch, so that its history and weights are not lost. A second Ctrl-C is not
    deferred. SIGTERM is what `kill`, Kubernetes and Slurm send before they kill a process; the
    number of the signal is the argument of the exception.

    Used both as a context manager around `fit` and as one of its callbacks. It does nothing outside
    the main thread, where Python delivers no signals, and leaves alone a signal for which the
    program has a handler of its own or which it ignores, as background programs may. When one of
    several `Workers` gets a signal, all stop after the same batch.

    Attributes:
        is_torn: bool, whether a second signal stopped the training inside a batch, so that its
            weights must not be saved.

    Example:
        >>> with InterruptBetweenBatches() as interrupt:
        ...     callbacks = [interrupt]  # model.fit(..., callbacks=callbacks)
    """

    def __init__(self):
        super().__init__()
        self._pending = None
        self._handlers = {}
        self.is_torn = False

    def __enter__(self):
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
            self._raise_if_pending()  # it came after the last batch

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
        print(
            "\nStopping after this batch or validation; press Ctrl-C again to stop immediately.",
            file=sys.stderr,
            flush=True,
        )

    def _raise_if_anyones(self):
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


_SHOWN = 20  # rows of a batch
_LEAST_SCALE = 1e-4  # of a loss; reached after dozens of skipped steps in a row


class StopOnNaN(keras.callbacks.Callback):
    """Stops training when the loss is NaN or infinite, before anything of it is saved.

    A step that a loss scale skips is no such case, but it stops too when the scale falls below
    1e-4: no step has finite gradients then. The error names the step, the rows of its batch and the
    first layer that makes a number that is not finite when that batch runs again with the weights
    of the last checkpoint.

    Args:
        checkpoint: the `ResumeCheckpoint` of the training, a later callback.
        batches: object with `dataset(first_epoch, first_step, epochs)`, such as `BucketedBatches`;
            with `rows(epoch, step)` too, the error names the rows.

    Raises:
        ValueError: After the step with such a loss or scale; the model then has the checkpoint's
            weights.

    Example:
        >>> from tf_transformer.training import BestWeights, ResumeCheckpoint
        >>> checkpoint = ResumeCheckpoint("checkpoints", BestWeights("best.weights.h5"))
        >>> callbacks = [StopOnNaN(checkpoint, batches=None), checkpoint]
    """

    def __init__(self, checkpoint, batches):
        super().__init__()
        self.checkpoint = checkpoint
        self.batches = batches

    def on_train_batch_end(self, batch, logs=None):
        loss = logs["loss"]  # the mean of the epoch so far
        scale = getattr(self.model.optimizer, "dynamic_scale", None)
        if not math.isfinite(loss):
            name, expected, got = "loss", "a finite number", loss
        elif scale is not None and scale.numpy() < _LEAST_SCALE:
            name, expected, got = "loss scale", f"at least {_LEAST_SCALE}", f"{scale.numpy():.1e}"
        else:
            return
        epoch, done = self.checkpoint.position
        step = done - 1
        [again] = self.batches.dataset(epoch, step, epochs=1).take(1)
        x, y, weight = keras.utils.unpack_x_y_sample_weight(again)
        start, start_step = self.checkpoint.restore(self.model)
        raise ArgumentError(
            name,
            expected,
            f"{got} in epoch {epoch + 1}, step {step + 1}{self._rows(epoch, step)}",
            f"With the weights of the last checkpoint, after {start} epochs and {start_step} "
            f"steps, {first_not_finite(self.model, x, y, weight)}",
        )

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
    """Yield a layer and those inside it, with names from the model down."""
    yield layer, path
    for inner in layer._flatten_layers(recursive=False, include_self=False):
        yield from _paths(inner, f"{path} / {inner.name}")


def _is_finite(outputs):
    tensors = [x for x in tf.nest.flatten(outputs) if tf.is_tensor(x) and x.dtype.is_floating]
    return all(bool(tf.reduce_all(tf.math.is_finite(x))) for x in tensors)
