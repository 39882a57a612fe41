"""Writing a weights file without harm to the one before, and reading it."""

import math

from tf_transformer.data.replacing import replacing
from tf_transformer.errors import ArgumentError

OVERHEAD = 2**16  # bytes of an HDF5 file, and for each variable another 2**12


def save_weights(model, path):
    """Write a model's weights to a file, which is replaced at the end.

    HDF5 ends the process with a segmentation fault some time after it met a full disk. So the space
    is checked before.
    """
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    size = OVERHEAD + sum(
        2**12 + variable.value.dtype.size * math.prod(variable.shape) for variable in variables
    )
    with replacing(path, size=size) as beside:
        model.save_weights(beside)


def load_weights(model, path):
    """Read what `save_weights` wrote."""
    try:
        model.load_weights(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # HDF5 and Keras raise many kinds for a damaged file
        raise ArgumentError(
            "path",
            "whole weights of this model",
            f"a damaged file or those of another model: {error}",
            place=path,
        ) from error
