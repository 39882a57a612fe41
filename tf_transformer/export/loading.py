"""Loading SavedModels, and the cores they use."""

import os
from pathlib import Path

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.models.bert.checkpoints.files import read_bundle_index


def cores():
    """Return the number of cores, or 1 if there is a GPU."""
    return 1 if tf.config.list_physical_devices("GPU") else os.cpu_count() or 1


# What TensorFlow raises for a damaged SavedModel; AssertionError if its file lacks a variable.
_DAMAGES = (
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    ValueError,
    tf.errors.OpError,
)


def load_saved_model(path):
    """Load a SavedModel that this package wrote."""
    variables = Path(path) / "variables" / "variables"
    try:
        if (variables.parent / "variables.index").is_file():
            read_bundle_index(variables)  # TensorFlow ends the process if it is damaged
        return tf.saved_model.load(str(path))
    except _DAMAGES as error:
        raise ArgumentError(
            "path",
            "an intact SavedModel",
            f"a damaged one ({(str(error) or repr(error)).splitlines()[0]})",
            "Export it again.",
            place=path,
        ) from error
