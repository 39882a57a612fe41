"""Reading `.npy` files."""

import numpy as np

from tf_transformer.errors import ArgumentError


def map_array(path):
    """Map the array of an `.npy` file into memory, whatever its header says.

    Pickled objects are refused, and so is an array that is larger than the file: `np.load` would
    ask for its memory first.
    """
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise
    except (
        Exception
    ) as error:  # the header is parsed as Python: NumPy raises more than it documents
        raise ArgumentError(
            "path", "an .npy file", f"{path}, which is damaged or another kind of file: {error}"
        ) from error
