"""A callback that averages the weights of the last epochs."""

from pathlib import Path

import keras
import numpy as np

from tf_transformer.training.replacing import replacing


class EpochAverage(keras.callbacks.Callback):
    """Keeps the weights of the last epochs on disk, and gives a model their mean.

    "Attention Is All You Need", section 6.1, averages the last checkpoints. It takes the place of
    the decay of the learning rate that a short training has no time for.

    Args:
        folder: str or Path, where `epoch-001.weights.h5` and so on are written.
        epochs: int, how many of the last ones to keep.

    Example:
        >>> average = EpochAverage("epochs", epochs=5)
        >>> callbacks = [average]  # after `fit`: average.assign(model)
    """

    def __init__(self, folder, epochs=5):
        super().__init__()
        self.folder = Path(folder)
        self.epochs = epochs

    def on_epoch_end(self, epoch, logs=None):
        with replacing(self.folder / f"epoch-{epoch + 1:03}.weights.h5") as beside:
            self.model.save_weights(beside)
        for old in self._files()[: -self.epochs]:
            old.unlink()

    def assign(self, model):
        """Give `model` the mean of the weights that are kept.

        Args:
            model: a built `keras.Model` of the same architecture.

        Raises:
            FileNotFoundError: no epoch is finished yet.
        """
        files = self._files()
        if not files:
            raise FileNotFoundError(f"{self.folder}: expected weights of epochs, got none.")
        kept = []
        for file in files:
            model.load_weights(file)
            kept.append(model.get_weights())
        model.set_weights([np.mean(values, axis=0) for values in zip(*kept, strict=True)])

    def _files(self):
        return sorted(self.folder.glob("epoch-*.weights.h5"))
