"""The index of a TensorFlow checkpoint, read in Python.

TensorFlow's own reader ends the process when an entry of it is damaged.
"""

import glob
import math
import struct

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

_MAGIC = 0xDB4775248B80FB57  # of LevelDB's tables
_MOST_AXES = 254  # of a TensorFlow tensor
_FOOTER, _TRAILER = 48, 5  # bytes at the end of a table, and of a block
_DAMAGES_OF_INDEX = (DecodeError, IndexError, TypeError, ValueError, struct.error)


def read_bundle_index(prefix):
    """Read which variables a checkpoint has, and check that its data files can hold them."""
    try:
        entries = dict(_table(prefix.with_name(f"{prefix.name}.index").read_bytes()))
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries.pop(b""))
        sizes = _data_sizes(prefix, header.num_shards)
        shapes, dtypes = {}, {}
        for key, value in entries.items():
            name, entry = key.decode(), tensor_bundle_pb2.BundleEntryProto.FromString(value)
            shapes[name], dtypes[name] = _checked(name, entry, sizes)
    except KeyError:
        raise ValueError("the index has no header") from None
    except _DAMAGES_OF_INDEX as error:
        raise ValueError(f"the index is damaged, {error}") from error
    return shapes, dtypes


def _data_sizes(prefix, count):
    """The bytes of every data file."""
    found = sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*-of-{count:05}"))
    if not 1 <= count == len(found):
        raise ValueError(f"{count} data files expected, {len(found)} found")
    return [path.stat().st_size for path in found]


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
    numbers = math.prod(shape)  # a string takes a byte at least
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
    for _ in range(2):  # the first handle is that of a block without a use
        index, place = _handle(footer, place)
    for _, handle in _block(data, index):
        yield from _block(data, _handle(handle, 0)[0])


def _block(data, handle):
    """Yield the keys and values of a block; a key lacks what it shares with the last."""
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
    """Where a block is, `(start, size)`, and the place behind this."""
    start, place = _number(data, place)
    size, place = _number(data, place)
    return (start, size), place


def _number(data, place):
    """A number in bytes of seven bits, and the place behind it."""
    value = shift = 0
    while data[place] & 128:
        value |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1
