"""Loads checkpoints completely, or not at all."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.models.bert.checkpoints.config_files import (
    architecture_of,
    read_architecture,
    read_config,
)
from tf_transformer.models.bert.checkpoints.h5_file import H5File
from tf_transformer.models.bert.checkpoints.name_table import TIED, name_table
from tf_transformer.models.bert.checkpoints.safetensors_file import SafetensorsFile
from tf_transformer.models.bert.checkpoints.tensorflow_file import TensorflowFile
from tf_transformer.models.fewest_weights import check_sizes


def open_checkpoint(path):
    """Find and open a checkpoint."""
    path = Path(path)
    if not path.is_dir() and not path.with_name(f"{path.name}.index").is_file():
        raise MissingFileError(
            "path",
            "a local folder with a checkpoint, or the prefix of a TensorFlow checkpoint",
            f"{path}, which is neither",
            "Checkpoints are not downloaded.",
        )
    if not path.is_dir():
        return TensorflowFile(path), _google_config(path.parent)
    indices = sorted(path.glob("*.index"))
    safetensors, h5 = any(path.glob("*.safetensors*")), path / "tf_model.h5"
    published = safetensors or h5.is_file() or any(path.glob("*.bin"))
    if not indices or (published and (path / "config.json").is_file()):
        from_h5 = h5.is_file() and not safetensors
        return H5File(h5) if from_h5 else SafetensorsFile(path), path / "config.json"
    if len(indices) > 1:
        raise MissingFileError(
            "path",
            f"one checkpoint in {path}",
            ", ".join(index.stem for index in indices),
            f"Name one: {indices[0].with_suffix('')}",
        )
    return TensorflowFile(indices[0].with_suffix("")), _google_config(path)


def read_checkpoint(path, changes, ignored_fields=()):
    """Open a checkpoint and read its configuration."""
    file, config_path = open_checkpoint(path)
    config = read_config(config_path, ignored_fields=ignored_fields, **changes)
    architecture = read_architecture(config_path)
    rows = config.vocab_size + config.type_vocab_size
    if architecture is None:
        rows += config.max_position_embeddings
    check_sizes(
        config_path,
        sum(map(math.prod, file.shapes.values())),
        rows * config.embedding_width,
        config.hidden_size,
        (architecture and architecture.key_dim) or config.head_size,
        [(1, *sizes) for sizes in config.layer_sizes or ()]
        or [(config.num_groups, *config.size_of(0))],
        architecture,
    )
    table = name_table(architecture_of(config, architecture), file.kind)

    def has(name):
        there = table.there(name)
        return there in file.shapes or there.removeprefix(table.prefix) in file.shapes

    return file, config, architecture, has


def load_variables(file, variables, config, new=(), architecture=None):
    """Load variables from a checkpoint; names and shapes must match exactly.

    The checkpoint may also contain values that are not weights (an optimizer's moments, position
    numbers), copies of weights, heads of other tasks, and a pooler; they are ignored.
    """
    table = name_table(architecture_of(config, architecture), file.kind)
    bare = not any(name.startswith(table.prefix) for name in file.shapes)
    names = {}
    for ours in (name for name in variables if name not in new):
        there = table.there(ours)
        names[ours] = there.removeprefix(table.prefix) if bare else there
    wrong = []
    for ours, there in names.items():
        shape = tuple(variables[ours].shape)
        expected = shape[::-1] if table.is_transposed(ours) else shape
        if there not in file.shapes:
            wrong.append(f"{there}: missing in the file; expected shape {expected}")
        elif file.shapes[there] != expected:
            wrong.append(f"{there}: expected shape {expected}, got {file.shapes[there]}")
        elif file.dtypes[there] not in file.floats:
            wrong.append(f"{there}: expected floats, got {file.dtypes[there]}")
    for there in file.shapes.keys() - set(names.values()):
        if not table.is_left_over(f"{table.prefix}{there}" if bare else there):
            wrong.append(f"{there}: in the file, with shape {file.shapes[there]}; not in the model")
    if any(name.startswith("cls/predictions/") for name in names):
        wrong += [f"{copy}: expected to equal {of}" for copy, of in _broken_ties(file)]
    if wrong:
        raise ArgumentError(
            "path",
            f"in {file.path} the weights of a model with this configuration "
            f"({len(variables)} variables)",
            "\n  ".join(["differences; nothing was loaded:", *sorted(wrong)]),
        )

    def read(ours):
        with tf.device("CPU"):  # a thread does not inherit the caller's device
            array = tf.convert_to_tensor(file.read(names[ours]))
            # TensorFlow transposes with several threads, NumPy with one.
            return tf.transpose(array) if table.is_transposed(ours) else array

    with ThreadPoolExecutor() as pool:  # most of the time goes into copies outside Python
        for ours, array in zip(names, pool.map(read, names), strict=True):
            variables[ours].assign(array)


def _broken_ties(file):
    for copy, of in TIED.items():
        if copy in file.shapes and of in file.shapes:
            floats = {file.dtypes[copy], file.dtypes[of]} <= file.floats
            if not floats or not np.array_equal(file.read(copy), file.read(of)):
                yield copy, of


def _google_config(folder):
    for name in ("bert_config.json", "albert_config.json", "config.json"):
        if (folder / name).is_file():
            return folder / name
    raise MissingFileError("path", f"bert_config.json in {folder}", "none")
