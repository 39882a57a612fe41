"""TensorFlow checkpoints, the format of the published BERT models."""

import threading
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.models.bert.checkpoints.bundle_index import read_bundle_index

# What TensorFlow raises for a damaged checkpoint: its own errors, or Python errors.
_DAMAGES = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


class TensorflowFile:
    """The variables of a TensorFlow 1 checkpoint."""

    kind = "tensorflow"
    floats = frozenset({"float16", "bfloat16", "float32", "float64"})

    def __init__(self, prefix):
        self.path = Path(prefix)
        self._lock = threading.Lock()  # TensorFlow's reader serves one thread at a time
        if not self.path.with_name(f"{self.path.name}.index").is_file():
            raise MissingFileError("path", f"the checkpoint {prefix}", f"no {prefix}.index")
        try:
            self.shapes, self.dtypes = read_bundle_index(self.path)
            self._reader = tf.train.load_checkpoint(str(prefix))
        except _DAMAGES as error:
            raise self._damaged(error) from error

    def read(self, name):
        """Read one variable."""
        try:
            with self._lock:
                return np.asarray(self._reader.get_tensor(name))
        except _DAMAGES as error:
            raise self._damaged(error) from error

    def _damaged(self, error):
        return ArgumentError(
            "path",
            "a complete TensorFlow checkpoint",
            f"{self.path}, which cannot be read: {error}",
            "Was the download complete, with its .index and .data files?",
        )
