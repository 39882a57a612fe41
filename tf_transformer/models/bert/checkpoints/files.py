"""Files of weights: safetensors, HDF5, TensorFlow's checkpoints."""

import glob
import math
import os
import re
import shutil
import struct
import threading
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage, check
from tf_transformer.json_text import parse_json

_MAGIC = 0xDB4775248B80FB57  # of LevelDB's tables
_MOST_AXES = 254  # of a TensorFlow tensor
_FOOTER, _TRAILER = 48, 5  # bytes at the end of a table, and of a block


def read_bundle_index(prefix):
    """Read which variables a checkpoint has, and check that its data files can hold them."""
    try:
        entries = dict(_table(prefix.with_name(f"{prefix.name}.index").read_bytes()))
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries.pop(b""))
        count = header.num_shards
        found = sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*-of-{count:05}"))
        if not 1 <= count == len(found):
            raise ValueError(f"{count} data files expected, {len(found)} found")
        sizes = [path.stat().st_size for path in found]
        shapes, dtypes = {}, {}
        for key, value in entries.items():
            name, entry = key.decode(), tensor_bundle_pb2.BundleEntryProto.FromString(value)
            shapes[name], dtypes[name] = _checked(name, entry, sizes)
    except KeyError:
        raise ValueError("the index has no header") from None
    except (DecodeError, IndexError, TypeError, ValueError, struct.error) as error:
        raise ValueError(f"the index is damaged, {error}") from error
    return shapes, dtypes


def _checked(name, entry, sizes):
    """The shape and the dtype of an entry."""
    shape, dtype = tuple(dim.size for dim in entry.shape.dim), tf.dtypes.as_dtype(entry.dtype)
    if entry.slices:
        raise ValueError(f"{name} is partitioned, which is not supported")
    impossible = len(shape) > _MOST_AXES or math.prod(max(1, dim) for dim in shape) >= 2**63
    if not 0 <= entry.shard_id < len(sizes) or min(shape, default=0) < 0 or impossible:
        raise ValueError(f"{name} has shape {shape} in file {entry.shard_id}")
    inside = 0 <= entry.offset <= entry.offset + entry.size <= sizes[entry.shard_id]
    fixed = dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex
    numbers = math.prod(shape)  # a string takes at least a byte
    fits = numbers * dtype.size == entry.size if fixed else numbers <= entry.size
    if not (inside and fits):
        raise ValueError(f"{name} has shape {shape} in {entry.size} bytes from {entry.offset} on")
    return shape, dtype.name


def _table(data):
    """Yield the keys and values of a table."""
    footer = data[-_FOOTER:]
    if len(footer) < _FOOTER or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("it does not end as one")
    place = 0
    for _ in range(2):  # the first handle is of an unused block
        index, place = _handle(footer, place)
    for _, handle in _block(data, index):
        yield from _block(data, _handle(handle, 0)[0])


def _block(data, handle):
    """Yield the keys and values of a block; a key omits its common prefix with the last key."""
    start, size = handle
    if start + size + _TRAILER > len(data) or data[start + size]:
        raise ValueError(f"a block of {size} bytes from {start} on is cut off or compressed")
    block = data[start : start + size]
    (restarts,) = struct.unpack("<I", block[-4:])
    place, key, end = 0, b"", size - 4 - 4 * restarts
    while place < end:
        shared, place = _number(block, place)
        own, place = _number(block, place)
        length, place = _number(block, place)
        if shared > len(key) or place + own + length > end:
            raise ValueError(f"an entry of a block from {start} on is longer than the block")
        key = key[:shared] + block[place : place + own]
        yield key, block[place + own : place + own + length]
        place += own + length


def _handle(data, place):
    """The `(start, size)` of a block, and the place after them."""
    start, place = _number(data, place)
    size, place = _number(data, place)
    return (start, size), place


def _number(data, place):
    """A number in bytes of seven bits, and the place after it."""
    value = shift = 0
    while data[place] & 128:
        value |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1


# What TensorFlow raises for a damaged checkpoint: its own errors, or Python errors.
_DAMAGES = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


class TensorflowFile:
    """The variables of a TensorFlow 1 checkpoint."""

    kind = "tensorflow"
    floats = frozenset({"float16", "bfloat16", "float32", "float64"})

    def __init__(self, prefix):
        self.path = Path(prefix)
        self._lock = threading.Lock()  # TensorFlow's reader is not thread-safe
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
        remedy = "Was the download complete, with its .index and .data files?"
        return _unreadable("a complete TensorFlow checkpoint", self.path, error, remedy)


def _unreadable(expected, path, error, remedy="Was the download complete?"):
    return ArgumentError("path", expected, f"{path}, which cannot be read: {error}", remedy)


_LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


class H5File:
    """The weights of `tf_model.h5`, under the names of a safetensors file, which are PyTorch's."""

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
            expected = "the weights of a TensorFlow model of transformers"
            raise _unreadable(expected, self.path, error) from error
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
            expected = f"all values of {path} within {self.path}, {item.nbytes} bytes"
            got = item.id.get_storage_size()
            raise ArgumentError("path", expected, got, "Save the model again.")
        array, name = item[()], _published_name(path)
        if name.endswith("weight") and path.endswith("/kernel:0"):
            array = array.T
        # A masked-word head repeats the embeddings that it shares.
        if name in self._arrays and not np.array_equal(self._arrays[name], array):
            raise ArgumentError("path", f"one {name} in {self.path}", "two different ones")
        self._arrays[name] = array


def _published_name(path):
    """The name in PyTorch of a weight at `LAYER/MODEL/...` of the file."""
    # `bert/tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0` is
    # `bert.encoder.layer.0.output.dense.weight`, transposed.
    *scopes, leaf = path.removesuffix(":0").split("/")[2:] or [path]
    scopes = [re.sub(r"_\._(\d+)$", r".\1", scope) for scope in scopes]
    scopes = [re.sub(r"^(mlm|nsp)___", "", scope) for scope in scopes]
    return ".".join([*scopes, _LEAVES.get(leaf, leaf)])


# The floats of a file; other dtypes are not weights.
_DTYPES = {"F16": "<f2", "BF16": tf.bfloat16.as_numpy_dtype, "F32": "<f4", "F64": "<f8"}


class SafetensorsFile:
    """The tensors of `model.safetensors`, or of the parts in `model.safetensors.index.json`."""

    kind = "safetensors"
    floats = frozenset(_DTYPES)

    def __init__(self, folder, name="model"):
        self.path = Path(folder)
        self._homes = {}  # name -> the mapped file, and the tensor's first and last byte in it
        self.shapes, self.dtypes = {}, {}
        whole = f"{name}.safetensors"
        index = self.path / f"{whole}.index.json"
        if (self.path / whole).is_file():
            self._open(whole, None)
        else:
            for part, names in _parts(index).items():
                self._open(part, names)

    def read(self, name):
        """Map one tensor of floats into memory; the package would copy it."""
        file, start, end = self._homes[name]
        return file[start:end].view(_DTYPES[self.dtypes[name]]).reshape(self.shapes[name])

    def _open(self, part, expected):
        try:
            import safetensors
        except ImportError as error:
            remedy = 'pip install -e ".[bert]"'
            raise MissingPackage(f"safetensors is not installed: {remedy}") from error
        path = self.path / part
        if not os.path.isfile(path):  # `is_file` raises an error for a name that is too long
            listed = f"the file {path}, listed in the index"
            raise MissingFileError("path", listed, "none", "Download it again.")
        try:
            with safetensors.safe_open(path, framework="np") as file:  # checks the whole header
                names = set(file.keys())
        except (safetensors.SafetensorError, OSError) as error:
            raise _unreadable("a safetensors file", path, error) from error
        if expected is not None and names != expected:
            got = f"differences: {', '.join(sorted(names ^ expected)[:5])}"
            raise ArgumentError("path", f"in {path} the tensors listed in the index", got)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header, data_start = parse_json(file.read(length)), 8 + length
        mapped = np.memmap(path, np.uint8, mode="r")
        for name in sorted(names):  # old ones end in "gamma" and "beta"
            scope, _, leaf = name.rpartition(".")
            new = f"{scope}.{_LEAVES.get(leaf, leaf)}" if scope.endswith("LayerNorm") else name
            check(new not in self.shapes, "path", f"{new} once in {self.path}", f"{name} as well")
            tensor = header[name]
            start, end = tensor["data_offsets"]
            self._homes[new] = mapped, data_start + start, data_start + end
            self.shapes[new], self.dtypes[new] = tuple(tensor["shape"]), tensor["dtype"]


def _parts(index):
    """Read an index file: dict, part to the names in it."""
    if not index.is_file():
        pickles = sorted(path.name for path in index.parent.glob("*.bin"))
        hint = "".join(
            f" There is {name}, a pickle, which can run arbitrary code when opened and is not "
            f"supported: save the model as safetensors with the library that created it."
            for name in pickles[:1]
        )
        whole = index.name.removesuffix(".index.json")
        raise MissingFileError("path", f"{whole} in {index.parent}", f"none.{hint}")
    try:
        homes = parse_json(index.read_bytes())["weight_map"]
        parts = {}
        for name, part in homes.items():
            if Path(part).name != part:
                raise ValueError(f"{part!r} is not a file in the same folder")
            parts.setdefault(part, set()).add(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        got = f"{index}: {error!r}"
        raise ArgumentError("path", "an index of safetensors files", got) from error
    return parts


def check_weights(file, expected, is_left_over, differences=()):
    """Refuse a file whose tensors are not floats of the `expected` shapes; list all differences."""
    wrong = list(differences)
    for name, shape in expected.items():
        if name not in file.shapes:
            wrong.append(f"{name}: missing in the file; expected shape {shape}")
        elif file.shapes[name] != shape:
            wrong.append(f"{name}: expected shape {shape}, got {file.shapes[name]}")
        elif file.dtypes[name] not in file.floats:
            wrong.append(f"{name}: expected floats, got {file.dtypes[name]}")
    for name in file.shapes.keys() - expected.keys():
        if not is_left_over(name):
            wrong.append(f"{name}: in the file, with shape {file.shapes[name]}; not in the model")
    tensors = f"a model with this configuration ({len(expected)} tensors)"
    got = "\n  ".join(["differences; nothing was loaded:", *sorted(wrong)])
    check(not wrong, "path", f"in {file.path} the weights of {tensors}", got)


def unequal_copies(file, copies):
    """Yield which copies in a file are not equal floats; `copies`: name -> name of the original."""
    for copy, of in copies.items():
        if {copy, of} <= file.shapes.keys():
            are_floats = {file.dtypes[copy], file.dtypes[of]} <= file.floats
            if not (are_floats and np.array_equal(file.read(copy), file.read(of))):
                yield f"{copy}: expected to equal {of}"


def name_in_file(ours, rows):
    """A variable's name by rows `(here, there, ...)`, with the rest of its row."""
    # `{n}` is the number of a layer. Rows that end in "/" here stand for all leaves; one that ends
    # in "." there is of PyTorch.
    [number] = re.findall(r"layer_?(\d+)/", ours) or [""]
    general = re.sub(r"(layer_?)\d+/", r"\1{n}/", ours)
    scope, _, leaf = general.rpartition("/")
    for here, there, *others in rows:
        there = there.replace("{n}", number)
        if here in (ours, general):
            return there, *others
        if here == f"{scope}/":
            return there + (_LEAVES.get(leaf, leaf) if there.endswith(".") else leaf), *others
    raise KeyError(ours)


_SIDE_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",  # BERT
    "vocab.json",  # GPT-2, RoBERTa, Marian, M2M100
    "merges.txt",
    "source.spm",  # Marian
    "target.spm",
    "sentencepiece.bpe.model",  # XLM-RoBERTa, mBART, M2M100
    "spiece.model",  # T5, ALBERT
    "tokenizer.model",  # Llama
    "chat_template.jinja",
    "generation_config.json",
    "sentence_bert_config.json",  # maximum length of a text
)


def copy_side_files(source, folder):
    """Copy what a folder has for its texts: the tokenizer and the settings of generation."""
    for name in _SIDE_FILES:
        if (Path(source) / name).is_file():
            shutil.copy(Path(source) / name, folder)
