"""Reading pairs from shards, in batches.

Axes: B batch, L bucket length.
"""

import concurrent.futures
import itertools
import os
from pathlib import Path

import numpy as np

from tf_transformer.data.batches import BucketedBatches
from tf_transformer.data.readers import read_tsv
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import check_format, parse_json
from tf_transformer.tokenizers import Tokenizer

FORMAT = 1
MANIFEST = "prepared.json"
_AT_ONCE = 4096  # records parsed at once


class PreparedPairs:
    """The training pairs of a prepared folder, with one shard in memory at a time.

    Iterating and slicing give pairs of texts, decoded from the ids.

    Args:
        folder: str or Path, see `prepare_pairs`.

    Attributes:
        shards: list of dicts with `name`, `pairs` (their number) and `sizes`, a dict from the
            number of tokens of the longer side to the number of pairs.
        manifest: dict, the whole content of `prepared.json`.

    Raises:
        FileNotFoundError: If the folder is not prepared, or a file is missing.
        ValueError: If it was prepared by another version, or a file is damaged.

    Example:
        >>> PreparedPairs("nowhere")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: prepared: expected a folder that tf-transformer
        prepare wrote, got nowhere.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        if not path.is_file():
            raise MissingFileError("prepared", "a folder that tf-transformer prepare wrote", folder)
        try:
            self.manifest = parse_json(path.read_bytes())
            check_format(self.manifest, FORMAT, "Prepare the data again.", path)
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
        """The fields of a `Preset` that are already fixed: `subword` and `vocab_size`."""
        return {name: self.manifest[name] for name in ("subword", "vocab_size")}

    def held_out(self, name):
        """The (source, target) strings of the set "validation" or "test", a list."""
        return read_tsv(self.folder / f"{name}.tsv")

    def read(self, number):
        """Return the ids of an intact shard, `(sources, targets)`, lists of int32 arrays."""
        import tensorflow as tf

        shard = self.shards[number]
        path = str(self.folder / shard["name"])
        sides = {"source": [], "target": []}
        feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        try:
            _check_lengths(path)
            for records in tf.data.TFRecordDataset(path).batch(_AT_ONCE):
                parsed = tf.io.parse_example(records, dict.fromkeys(sides, feature))
                for name, found in parsed.items():
                    ids = found.values.numpy().astype(np.int32)
                    sides[name] += np.split(ids, found.row_splits.numpy()[1:-1])
            count = len(sides["source"])
            if count != shard["pairs"]:
                raise ValueError(f"{count} pairs instead of {shard['pairs']}")
        except (ValueError, tf.errors.OpError) as error:
            expected, said = "the shard that was prepared", str(error).split("\n")[0]
            got, remedy = f"a damaged file ({said})", "Prepare the data again."
            raise ArgumentError("path", expected, got, remedy, place=path) from error
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
    """Return the manifest's entry for a shard, with ints as the keys of `sizes`."""
    sizes = {int(size): rows for size, rows in content["sizes"].items()}
    name, numbers = content["name"], (content["pairs"], *sizes, *sizes.values())
    counted = all(type(n) is int and n >= 0 for n in numbers) and sum(sizes.values()) == numbers[0]
    if Path(name).name != name or not counted:
        expected = "the name of a file in the folder, and numbers of pairs, for each shard"
        raise ArgumentError("path", expected, f"{content!r}", place=path)
    return {**content, "sizes": sizes}


def _check_lengths(path):
    """Raise ValueError unless the records fill the file."""
    # TensorFlow trusts the length of a record and crashes if it cannot allocate as much memory.
    content, place = Path(path).read_bytes(), 0
    while place < len(content):
        head = content[place : place + 8]
        place += int.from_bytes(head, "little") + 16  # 8 for the length, 4 for each checksum
    if place != len(content):
        raise ValueError("a record is longer than the file")


class ShardedBatches:
    """Prepared pairs, grouped by length, as a `tf.data` pipeline for `model.fit`.

    Like `BucketedBatches`, but with two shards in memory at a time. Each epoch shuffles the shards,
    the pairs of a shard and its batches, depending only on `seed` and the epoch. Raises a
    ValueError if no pair fits, or, while reading, a shard is damaged.

    Args:
        pairs: `PreparedPairs`.
        start_id, end_id, lengths, tokens_per_batch, seed: see `BucketedBatches`.

    Example:
        >>> from tf_transformer.data import PairSource, prepare_pairs
        >>> _ = Path("pairs.tsv").write_text("".join(f"a {n}\\tb {n}\\n" for n in range(500)))
        >>> path = prepare_pairs(PairSource(tsv="pairs.tsv"), "prepared", vocab_size=300)
        >>> options = {"start_id": 1, "end_id": 2, "lengths": (16,), "tokens_per_batch": 64}
        >>> batches = ShardedBatches(PreparedPairs(path), **options)
        >>> (source, target_in), target_out = next(batches.epoch(0))
        >>> source.shape
        (4, 16)
    """

    def __init__(self, pairs, *, start_id, end_id, lengths, tokens_per_batch, seed=0):
        self.pairs, self.seed = pairs, seed
        self._settings = {"start_id": start_id, "end_id": end_id, "lengths": lengths}
        self._settings["tokens_per_batch"] = tokens_per_batch
        self._batch_sizes = [max(1, tokens_per_batch // length) for length in lengths]
        counts = np.zeros((len(pairs.shards), len(lengths) + 1), np.int64)  # the last: too long
        for shard, row in zip(pairs.shards, counts, strict=True):
            for size, rows in shard["sizes"].items():
                row[np.searchsorted(lengths, size + 1)] += rows
        self.dropped = int(counts[:, -1].sum())
        self._counts = counts[:, :-1]
        if not self._counts.any():
            expected = f"a pair of at most {lengths[-1] - 1} tokens per side"
            raise ArgumentError("lengths", expected, f"{len(pairs)} pairs, all longer")

    @property
    def shapes(self):
        """The shapes (B, L) that occur, one for each non-empty bucket."""
        sizes = zip(self._batch_sizes, self._settings["lengths"], strict=True)
        return list(itertools.compress(sizes, self._counts.any(0)))

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return int(self._steps().sum())

    def _steps(self):
        """Return the number of batches of each shard."""
        return (-(-self._counts // self._batch_sizes)).sum(1)

    def epoch(self, epoch, first_step=0):
        """Yield the batches of an epoch, see `BucketedBatches`; skipped shards are not read."""
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.pairs.shards))
        steps = self._steps()[order]
        ends = np.cumsum(steps)
        begun = int(np.searchsorted(ends, first_step, side="right"))
        left = [int(number) for number in order[begun:] if self._steps()[number]]
        skipped = first_step - int(ends[begun] - steps[begun]) if left else 0
        with concurrent.futures.ThreadPoolExecutor(1) as reader:
            shards = (reader.submit(self._shard, number) for number in left)
            following = next(shards, None)
            while following is not None:
                batches, following = following.result(), next(shards, None)
                yield from batches.epoch(epoch, skipped)
                skipped = 0

    parts, dataset = BucketedBatches.parts, BucketedBatches.dataset  # uses `epoch` above

    def _shard(self, number):
        """Return the batches of a shard, seeded differently for each shard."""
        seed = int(np.random.SeedSequence((self.seed, number)).generate_state(1)[0])
        return BucketedBatches(*self.pairs.read(number), seed=seed, **self._settings)
