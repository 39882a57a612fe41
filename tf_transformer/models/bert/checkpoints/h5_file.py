"""`tf_model.h5`, the weights that the TensorFlow classes of transformers 2 to 4 saved."""

import re
from pathlib import Path

import h5py
import numpy as np

from tf_transformer.errors import ArgumentError

_LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


class H5File:
    """The weights of `tf_model.h5`, under the names of a safetensors file, which are PyTorch's.

    A weight `bert/tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0` is
    `bert.encoder.layer.0.output.dense.weight`, transposed.
    """

    kind = "safetensors"
    floats = frozenset({"float16", "float32", "float64"})

    def __init__(self, path):
        self.path = Path(path)
        self._arrays = {}
        try:
            with h5py.File(self.path, "r") as file:
                file.visititems(self._take)  # does not follow links
        except ArgumentError:
            raise
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # h5py's
            raise ArgumentError(
                "path",
                "the weights of a TensorFlow model of transformers",
                f"{self.path}, which cannot be read: {error}",
                "Was the download complete?",
            ) from error
        # ALBERT adds the bias of the decoder in TensorFlow and leaves the other one at 0.
        if (added := self._arrays.pop("predictions.decoder.bias", None)) is not None:
            self._arrays["predictions.bias"] = added
        self.shapes = {name: array.shape for name, array in self._arrays.items()}
        self.dtypes = {name: array.dtype.name for name, array in self._arrays.items()}

    def read(self, name):
        """Return one weight, a key of `shapes`, as a NumPy array."""
        return self._arrays[name]

    def _take(self, path, item):
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual or item.id.get_storage_size() < item.nbytes:
            raise ArgumentError(
                "path",
                f"all values of {path} within {self.path}, {item.nbytes} bytes",
                item.id.get_storage_size(),
                "Save the model again.",
            )
        array, name = item[()], _published_name(path)
        if name.endswith("weight") and path.endswith("/kernel:0"):
            array = array.T
        # A head of masked words repeats the embeddings that it shares.
        if name in self._arrays and not np.array_equal(self._arrays[name], array):
            raise ArgumentError("path", f"one {name} in {self.path}", "two different ones")
        self._arrays[name] = array


def _published_name(path):
    """The name in PyTorch of a weight at `LAYER/MODEL/...` of the file."""
    *scopes, leaf = path.removesuffix(":0").split("/")[2:] or [path]
    scopes = [re.sub(r"_\._(\d+)$", r".\1", scope) for scope in scopes]
    scopes = [re.sub(r"^(mlm|nsp)___", "", scope) for scope in scopes]
    return ".".join([*scopes, _LEAVES.get(leaf, leaf)])
