"""Weights in safetensors files, one or several."""

import contextlib
import json
import re
from pathlib import Path

_OLD_LEAVES = {"gamma": "weight", "beta": "bias"}


class SafetensorsFile:
    """The tensors of `model.safetensors`, or of the parts that `model.safetensors.index.json`
    names.

    Read by the package `safetensors`. Old names of layer normalisation ("gamma", "beta") appear
    under their new ones.

    Args:
        folder: str or Path.

    Raises:
        FileNotFoundError: the folder has neither file, or lacks a part.
        ImportError: the package is not installed.
        ValueError: a file is damaged, or holds other tensors than the index says.

    Example:
        >>> import tempfile
        >>> from safetensors.numpy import save_file
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_file({"table": np.ones((2, 3), np.float32)}, folder / "model.safetensors")
        >>> SafetensorsFile(folder).shapes
        {'table': (2, 3)}
    """

    kind = "safetensors"

    def __init__(self, folder):
        self.path = Path(folder)
        self._files = contextlib.ExitStack()
        self._homes = {}  # of each name: the open file, and the name in it
        self.shapes, self.dtypes = {}, {}
        index = self.path / "model.safetensors.index.json"
        if (self.path / "model.safetensors").is_file():
            self._open("model.safetensors", None)
        else:
            for part, names in _parts(index).items():
                self._open(part, names)

    def read(self, name):
        """One tensor.

        Args:
            name: str, a key of `shapes`.

        Returns:
            NumPy array.
        """
        file, name = self._homes[name]
        return file.get_tensor(name)

    def _open(self, part, expected):
        safetensors = _package()
        path = self.path / part
        if not path.is_file():
            raise FileNotFoundError(
                f"path: expected the file {path}, which the index names, got none. Fetch it again."
            )
        try:
            file = safetensors.safe_open(path, framework="np")
            names = set(file.keys())
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(
                f"path: expected a safetensors file, got {path}, which cannot be read: {error}. "
                f"Was it fetched to the end?"
            ) from error
        if expected is not None and names != expected:
            raise ValueError(
                f"path: expected in {path} the tensors that the index says, got others: "
                f"{', '.join(sorted(names ^ expected)[:5])}."
            )
        for name in sorted(names):
            scope, _, leaf = name.rpartition(".")
            new = name
            if re.search(r"LayerNorm$", scope):
                new = f"{scope}.{_OLD_LEAVES.get(leaf, leaf)}"
            if new in self.shapes:
                raise ValueError(f"path: expected {new} once in {self.path}, got {name} beside it.")
            tensor = file.get_slice(name)
            self._homes[new] = file, name
            self.shapes[new], self.dtypes[new] = tuple(tensor.get_shape()), tensor.get_dtype()


def _package():
    try:
        import safetensors
    except ImportError as error:
        raise ImportError('safetensors is not installed: pip install -e ".[bert]"') from error
    return safetensors


def _parts(index):
    """Of an index file: the names in each part."""
    if not index.is_file():
        pickles = sorted(path.name for path in index.parent.glob("*.bin"))
        hint = "".join(
            f" There is {name}, a pickle, which can run any program when it is opened and is not "
            f"read here: save the model as safetensors with the library that made it."
            for name in pickles[:1]
        )
        raise FileNotFoundError(
            f"path: expected model.safetensors in {index.parent}, got none.{hint}"
        )
    try:
        homes = json.loads(index.read_text("utf-8"))["weight_map"]
        parts = {}
        for name, part in homes.items():
            if Path(part).name != part:
                raise ValueError(f"{part!r} is not a file in the same folder")
            parts.setdefault(part, set()).add(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"path: expected an index of safetensors files, got {index}: {error!r}."
        ) from error
    return parts
