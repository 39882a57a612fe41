"""`model.fit` that can be stopped at any batch and resumed."""

import functools
import sys
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer.data.files import replacing
from tf_transformer.distribution import WorkerShare, current_workers, lost_workers_named
from tf_transformer.errors import ArgumentError
from tf_transformer.training.callbacks import (
    BestWeights,
    InterruptBetweenBatches,
    StopOnNaN,
    load_weights,
)
from tf_transformer.training.optimizers import FusedAdam, GlobalLossScale
from tf_transformer.training.resume_checkpoint import ResumeCheckpoint


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
        ValueError: If the loss is not finite, see `StopOnNaN`; if all checkpoints are damaged, or
            they belong to a different model or other data; if an optimizer of Keras would leave
            several workers with different weights.

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
