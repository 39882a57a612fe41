"""Weights in one or several safetensors files."""

import os
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage
from tf_transformer.json_text import parse_json

# The floats of a file; other dtypes are not weights.
_DTYPES = {"F16": "<f2", "BF16": tf.bfloat16.as_numpy_dtype, "F32": "<f4", "F64": "<f8"}
_OLD_LEAVES = {"gamma": "weight", "beta": "bias"}


class SafetensorsFile:
    """The tensors of `model.safetensors`, or of the parts listed in
    `model.safetensors.index.json`.

    The package `safetensors` opens and checks the files. Old names in layer normalisation ("gamma",
    "beta") are replaced by the new ones.
    """

    kind = "safetensors"
    floats = frozenset(_DTYPES)

    def __init__(self, folder):
        self.path = Path(folder)
        self._homes = {}  # name -> the mapped file, and the tensor's first and last byte in it
        self.shapes, self.dtypes = {}, {}
        index = self.path / "model.safetensors.index.json"
        if (self.path / "model.safetensors").is_file():
            self._open("model.safetensors", None)
        else:
            for part, names in _parts(index).items():
                self._open(part, names)

    def read(self, name):
        """Map one tensor of floats into memory; the package would copy it."""
        file, start, end = self._homes[name]
        return file[start:end].view(_DTYPES[self.dtypes[name]]).reshape(self.shapes[name])

    def _open(self, part, expected):
        safetensors = _package()
        path = self.path / part
        if not os.path.isfile(path):  # `is_file` raises an error for a name that is too long
            raise MissingFileError(
                "path", f"the file {path}, listed in the index", "none", "Download it again."
            )
        try:
            with safetensors.safe_open(path, framework="np") as file:  # checks the whole header
                names = set(file.keys())
        except (safetensors.SafetensorError, OSError) as error:
            raise ArgumentError(
                "path",
                "a safetensors file",
                f"{path}, which cannot be read: {error}",
                "Was the download complete?",
            ) from error
        if expected is not None and names != expected:
            raise ArgumentError(
                "path",
                f"in {path} the tensors listed in the index",
                f"differences: {', '.join(sorted(names ^ expected)[:5])}",
            )
        header, data_start = _header(path)
        mapped = np.memmap(path, np.uint8, mode="r")
        for name in sorted(names):
            scope, _, leaf = name.rpartition(".")
            new = name
            if re.search(r"LayerNorm$", scope):
                new = f"{scope}.{_OLD_LEAVES.get(leaf, leaf)}"
            if new in self.shapes:
                raise ArgumentError("path", f"{new} once in {self.path}", f"{name} as well")
            tensor = header[name]
            start, end = tensor["data_offsets"]
            self._homes[new] = mapped, data_start + start, data_start + end
            self.shapes[new], self.dtypes[new] = tuple(tensor["shape"]), tensor["dtype"]


def _header(path):
    """Read the header of a file, and where the data behind it starts."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return parse_json(file.read(length)), 8 + length


def _package():
    try:
        import safetensors
    except ImportError as error:
        raise MissingPackage('safetensors is not installed: pip install -e ".[bert]"') from error
    return safetensors


def _parts(index):
    """Read an index file: dict, part to the names in it."""
    if not index.is_file():
        pickles = sorted(path.name for path in index.parent.glob("*.bin"))
        hint = "".join(
            f" There is {name}, a pickle, which can run arbitrary code when opened and is not "
            f"supported: save the model as safetensors with the library that created it."
            for name in pickles[:1]
        )
        raise MissingFileError("path", f"model.safetensors in {index.parent}", f"none.{hint}")
    try:
        homes = parse_json(index.read_bytes())["weight_map"]
        parts = {}
        for name, part in homes.items():
            if Path(part).name != part:
                raise ValueError(f"{part!r} is not a file in the same folder")
            parts.setdefault(part, set()).add(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArgumentError(
            "path", "an index of safetensors files", f"{index}: {error!r}"
        ) from error
    return parts
