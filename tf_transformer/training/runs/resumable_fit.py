"""`model.fit` that can be stopped at any batch and resumed."""

import sys
from pathlib import Path

import keras

from tf_transformer.training.callbacks.best_weights import BestWeights
from tf_transformer.training.callbacks.interrupt import InterruptBetweenBatches
from tf_transformer.training.callbacks.resume_checkpoint import ResumeCheckpoint


def resumable_fit(
    model, batches, validation, folder, *, epochs, patience=None, average=None, callbacks=()
):
    """Train until the last epoch or until the patience is exhausted; resume an interrupted run.

    Writes to the folder:

    best.weights.h5     the weights of the epoch with the lowest validation loss
    resume.npz          everything needed to resume
    history.csv         losses and metrics of every epoch

    Args:
        model: `keras.Model`, built and compiled with a built optimizer; has the best weights at
            the end.
        batches, validation: objects with `steps_per_epoch` and `dataset(first_epoch, first_step,
            epochs)`, such as `BucketedBatches`.
        folder: str or Path.
        epochs: int, total number of epochs; a run that is already past it is not trained further.
        patience: int or None, see `BestWeights`.
        average: None, or `MovingAverage` to validate and save the averaged weights.
        callbacks: further Keras callbacks.

    Raises:
        KeyboardInterrupt: On Ctrl-C, after the checkpoint is written.
        ValueError: If the checkpoint is damaged or belongs to a different model.

    Example:
        >>> from tf_transformer.data.epochs_dataset import epochs_dataset
        >>> class Batches:
        ...     steps_per_epoch = 1
        ...     def epoch(self, number):
        ...         yield np.ones((2, 1)), np.ones((2, 1))
        ...     def dataset(self, first_epoch=0, first_step=0, epochs=None):
        ...         signature = (tf.TensorSpec((2, 1)),) * 2
        ...         return epochs_dataset(self, signature, first_epoch, first_step, epochs)
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> model.optimizer.build(model.trainable_variables)
        >>> resumable_fit(model, Batches(), Batches(), "run", epochs=1)
        1/1...
        >>> sorted(path.name for path in Path("run").iterdir())
        ['best.weights.h5', 'history.csv', 'resume.npz']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    best = BestWeights(folder / "best.weights.h5", patience=patience, average=average)
    checkpoint = ResumeCheckpoint(folder / "resume.npz", best)
    checkpoint.set_model(model)  # Keras would do this, but an interrupt may come before
    done = checkpoint.restore(model) if checkpoint.path.exists() else 0
    history = keras.callbacks.CSVLogger(folder / "history.csv", append=done > 0)
    averages = [average] if average else []
    try:
        if not best.is_exhausted:
            with InterruptBetweenBatches() as interrupt:
                callbacks = [*callbacks, history, *averages, best, interrupt, checkpoint]
                _fit(model, batches, validation, epochs, checkpoint, callbacks)
    except KeyboardInterrupt:
        if average:
            average.swap_out()
        checkpoint.save()
        raise
    finally:
        if history.csv_file is not None:  # Keras closes it only on normal completion
            history.csv_file.close()
    model.load_weights(best.path)


def _fit(model, batches, validation, epochs, checkpoint, callbacks):
    steps = batches.steps_per_epoch
    epoch, step = divmod(int(model.optimizer.iterations), steps)
    options = {
        "validation_data": validation.dataset(epochs=1),
        "callbacks": callbacks,
        # The progress bar redraws itself on a terminal; in a log it would be one long line.
        "verbose": 1 if sys.stdout.isatty() else 2,
        "shuffle": False,
    }
    if step and epoch < epochs:  # the rest of the epoch that was interrupted
        model.fit(
            batches.dataset(epoch, step, epochs=1),
            initial_epoch=epoch,
            epochs=epoch + 1,
            steps_per_epoch=steps - step,
            **options,
        )
        epoch += 1
        checkpoint.restore(model)  # `fit` ends with the weights replaced by their average
    if epoch < epochs and not model.stop_training:
        model.fit(
            batches.dataset(epoch),
            initial_epoch=epoch,
            epochs=epochs,
            steps_per_epoch=steps,
            **options,
        )
