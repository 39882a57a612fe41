"""Reads what `prepare_pairs` wrote."""

import itertools
import os
from pathlib import Path

from tf_transformer.data.readers import read_tsv
from tf_transformer.data.replacing import replacing
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import parse_json
from tf_transformer.tokenizers import Tokenizer

FORMAT = 1
MANIFEST = "prepared.json"
_AT_ONCE = 4096  # records parsed at once


class PreparedPairs:
    """The training pairs of a prepared folder, one shard in memory at a time.

    Iterating yields pairs of texts, which the ids are turned back into; so does a slice.

    Args:
        folder: str or Path, see `prepare_pairs`.

    Attributes:
        shards: list of dict: `name`, `pairs`, how many, and `sizes`, a dict from the number of
            tokens of the longer side to the number of pairs.
        manifest: dict, the whole content of `prepared.json`.

    Raises:
        FileNotFoundError: If the folder is not prepared, or a file is missing.
        ValueError: If it was prepared by another version, or a file is damaged.

    Example:
        >>> PreparedPairs("nowhere")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: prepared: expected a folder that tf-transformer
        prepare wrote, got
        nowhere.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        if not path.is_file():
            raise MissingFileError("prepared", "a folder that tf-transformer prepare wrote", folder)
        try:
            self.manifest = parse_json(path.read_bytes())
            if self.manifest["format"] != FORMAT:
                raise ArgumentError(
                    "path",
                    f"format {FORMAT}",
                    f"{self.manifest['format']}, written by version {self.manifest['version']}",
                    "Prepare the data again.",
                    place=path,
                )
            self.shards = [_shard(shard, path) for shard in self.manifest["shards"]]
            self.vocabulary  # noqa: B018  raises if it is missing
        except ArgumentError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArgumentError("path", "a prepared folder", f"{error!r}", place=path) from error
        for shard in self.shards:
            file = self.folder / shard["name"]
            if not os.path.isfile(file):  # `is_file` raises an error for a name that is too long
                raise MissingFileError("folder", shard["name"], "no file", place=self.folder)
            if shard["pairs"] > file.stat().st_size:
                raise ArgumentError("file", f"{shard['pairs']} pairs", "a smaller file", place=file)

    @property
    def tokenizer_path(self):
        """Path of the vocabulary."""
        return self.folder / "tokenizer.json"

    @property
    def vocabulary(self):
        """The fields of a `Preset` that are settled: `subword` and `vocab_size`."""
        return {name: self.manifest[name] for name in ("subword", "vocab_size")}

    def held_out(self, name):
        """The pairs of a held-out set.

        Args:
            name: "validation" or "test".

        Returns:
            list of (source, target) strings.
        """
        return read_tsv(self.folder / f"{name}.tsv")

    def read(self, number):
        """The ids of a shard.

        Args:
            number: int, its place in `shards`.

        Returns:
            `(sources, targets)`, lists of int32 arrays.

        Raises:
            ValueError: If the file is damaged.
        """
        import numpy as np
        import tensorflow as tf

        shard = self.shards[number]
        path = str(self.folder / shard["name"])
        names = "source", "target"
        features = {
            name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for name in names
        }
        sides = {name: [] for name in names}
        try:
            _check_lengths(path)
            for records in tf.data.TFRecordDataset(path).batch(_AT_ONCE):
                for name, found in tf.io.parse_example(records, features).items():
                    ids = found.values.numpy().astype(np.int32)
                    sides[name] += np.split(ids, found.row_splits.numpy()[1:-1])
            count = len(sides["source"])
            if count != shard["pairs"]:
                raise ValueError(f"{count} pairs instead of {shard['pairs']}")
        except (ValueError, tf.errors.OpError) as error:
            said = str(error).split("\n")[0]
            raise ArgumentError(
                "path",
                "the shard that was prepared",
                f"a damaged file ({said})",
                "Prepare the data again.",
                place=path,
            ) from error
        return sides["source"], sides["target"]

    def __len__(self):
        return sum(shard["pairs"] for shard in self.shards)

    def __iter__(self):
        tokenizer = Tokenizer.load(self.tokenizer_path)
        for number in range(len(self.shards)):
            sides = (tokenizer.decode([*map(list, ids)]) for ids in self.read(number))
            yield from zip(*sides, strict=True)

    def __getitem__(self, rows):
        first, last, step = rows.indices(len(self))
        return list(itertools.islice(self, first, last, step))


def _shard(content, path):
    """What the manifest says of a shard, with ints as the keys of `sizes`."""
    sizes = {int(size): rows for size, rows in content["sizes"].items()}
    name, numbers = content["name"], (content["pairs"], *sizes, *sizes.values())
    counted = all(type(n) is int and n >= 0 for n in numbers) and sum(sizes.values()) == numbers[0]
    if Path(name).name != name or not counted:
        raise ArgumentError(
            "path",
            "the name of a file in the folder, and numbers of pairs, for each shard",
            f"{content!r}",
            place=path,
        )
    return {**content, "sizes": sizes}


def _check_lengths(path):
    """Raise ValueError unless the records fill the file.

    TensorFlow asks for the memory that the length of a record says, and crashes if it is too much.
    """
    content, place = Path(path).read_bytes(), 0
    while place < len(content):
        head = content[place : place + 8]
        place += int.from_bytes(head, "little") + 16  # the length, it and the record with checksums
    if place != len(content):
        raise ValueError("a record is longer than the file")


def write_tsv(path, pairs):
    """Write pairs as `read_tsv` reads them."""
    with replacing(path) as beside:
        beside.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
