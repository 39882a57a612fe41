"""Batches of pairs and texts, in memory or in shards, bucketed by length, as a data set.

Axes: B batch, L bucket length.
"""

import concurrent.futures
import itertools
import os
from numbers import Integral
from pathlib import Path

import numpy as np

from tf_transformer.data.files import read_tsv
from tf_transformer.errors import ArgumentError, MissingFileError, check
from tf_transformer.json_text import check_format, parse_json
from tf_transformer.tokenizers import Tokenizer

FORMAT = 1  # of prepared shards
MANIFEST = "prepared.json"
_AT_ONCE = 4096  # records parsed at once


def prefetched(dataset):
    """Prepare the next four batches while the model processes one."""
    import tensorflow as tf

    options = tf.data.Options()
    # There is nothing to tune, and the tuner can double the duration of an epoch: it sleeps 10 ms,
    # 20 ms, 40 ms, ... and at the end of the epoch the iterator waits until it wakes up.
    options.autotune.enabled = False
    return dataset.prefetch(4).with_options(options)


def epochs_dataset(batches, signature, first_epoch=0, first_step=0, epochs=None, transform=None):
    """The `tf.data.Dataset` of `batches.epoch(epoch, first_step)`, `epochs` times or infinitely."""
    import tensorflow as tf

    def generate():
        epoch = first_epoch
        while epochs is None or epoch < first_epoch + epochs:
            yield from batches.epoch(epoch, first_step if epoch == first_epoch else 0)
            epoch += 1

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if transform is not None:
        dataset = dataset.map(transform)
    # Keras warns at the end of a data set of unknown size.
    size = tf.data.INFINITE_CARDINALITY
    if epochs is not None:
        size = epochs * batches.steps_per_epoch - first_step
    return prefetched(dataset.apply(tf.data.experimental.assert_cardinality(size)))


def check_buckets(lengths, tokens_per_batch, above=0, why=""):
    """Check the lengths of buckets and the size of a batch."""
    fits = len(lengths) and all(isinstance(length, Integral) for length in lengths)
    fits = fits and list(lengths) == sorted(set(lengths)) and lengths[0] > above
    check(fits, "lengths", f"increasing ints above {above}{why}", lengths)
    fits = isinstance(tokens_per_batch, Integral) and tokens_per_batch >= 1
    check(fits, "tokens_per_batch", "an int of at least 1", tokens_per_batch)


class Buckets:
    """Base class of batches whose rows are padded to the first bucket length that fits.

    All batches of a bucket have the same shape (B, L); the last one is filled with padding rows.
    The order of epoch e depends only on `seed` and e, so that a run can resume at any step. For
    `dataset`, a subclass defines `parts`: names, in the structure of a batch. Raises a ValueError
    if the bucket lengths do not increase, or `tokens_per_batch` is below 1.

    Args:
        sizes: ints, the length of each row.
        matrices: function `(rows, length) -> arrays` that returns the rows with these indices as
            int32 arrays (rows, L).
        lengths: increasing ints, the bucket lengths L.
        tokens_per_batch: int; a bucket's batch has tokens_per_batch / L rows, at least 1.
        seed: int, seed for shuffling.
        fills: None for 0, or ints, the value of padding rows in each of the arrays.

    Example:
        >>> rows = np.array([[5, 6], [7, 0]])
        >>> matrices = lambda indices, length: (rows[indices, :length],)
        >>> buckets = Buckets([2, 1], matrices, lengths=(1, 2), tokens_per_batch=2)
        >>> sorted(batch.tolist() for batch, in buckets.epoch(0))
        [[[5, 6]], [[7], [0]]]
    """

    def __init__(self, sizes, matrices, *, lengths, tokens_per_batch, seed=0, fills=None):
        check_buckets(lengths, tokens_per_batch)
        self.seed, self._fills = seed, fills
        home = np.searchsorted(lengths, sizes)  # (rows,), index of the first L >= size
        self.dropped = int(np.sum(home == len(lengths)))  # rows that fit into no bucket
        self._buckets = []
        for i, length in enumerate(lengths):
            rows = np.flatnonzero(home == i)
            if len(rows):
                batch_size = max(1, tokens_per_batch // length)
                self._buckets.append((batch_size, rows, matrices(rows, length)))

    @property
    def shapes(self):
        """The shapes (B, L) that occur, one for each non-empty bucket."""
        return [(batch_size, matrices[0].shape[1]) for batch_size, _, matrices in self._buckets]

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return sum(-(-len(rows) // batch_size) for batch_size, rows, _ in self._buckets)

    def epoch(self, epoch, first_step=0):
        """Yield the batches of an epoch from a step on, tuples of arrays (B, L)."""
        for batch_size, _, matrices, chosen in self._batches(epoch)[first_step:]:
            rows = ((0, batch_size - len(chosen)), (0, 0))
            fills = self._fills or (0,) * len(matrices)
            yield tuple(
                np.pad(matrix[chosen], rows, constant_values=fill)
                for matrix, fill in zip(matrices, fills, strict=True)
            )

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """The `tf.data.Dataset` of what `epoch` yields in consecutive epochs, int32 (B, L).

        Args:
            first_epoch, first_step: ints, the epoch to start with and its first batch, from 0.
            epochs: int, the number of epochs; None for an infinite data set.
        """
        import tensorflow as tf

        ids = tf.TensorSpec((None, None), tf.int32)
        signature = tf.nest.map_structure(lambda _: ids, self.parts)
        return epochs_dataset(self, signature, first_epoch, first_step, epochs)

    def rows(self, epoch, step):
        """The rows of a batch, an int array (at most B,) of indices of `sizes`."""
        _, rows, _, chosen = self._batches(epoch)[step]
        return rows[chosen]

    def _batches(self, epoch):
        """Return the batches of an epoch in order: `(batch_size, rows, matrices, chosen rows)`."""
        rng = np.random.default_rng((self.seed, epoch))
        batches = []
        for batch_size, rows, matrices in self._buckets:
            order = rng.permutation(len(rows))
            for start in range(0, len(order), batch_size):
                batches.append((batch_size, rows, matrices, order[start : start + batch_size]))
        return [batches[i] for i in rng.permutation(len(batches))]


class BucketedBatches(Buckets):
    """Pairs of token ids, grouped by length, as a `tf.data` pipeline for `model.fit`.

    Each pair goes into the first bucket that fits both sides; see `Buckets`.

    Args:
        sources, targets: lists of lists of int token ids, without start or end.
        start_id, end_id: int, ids added before and after.
        lengths, tokens_per_batch, seed: see `Buckets`; L includes the start or end token.
        pad_id: int, the id of padding, the model's `pad_id`. It may also be the start token.

    Raises:
        ValueError: If the numbers of sources and targets differ, one contains padding, the bucket
            lengths do not increase, or no pair fits.

    Example:
        >>> options = {"start_id": 1, "end_id": 2, "lengths": (4,), "tokens_per_batch": 4}
        >>> batches = BucketedBatches([[5, 6]], [[7]], **options)
        >>> (source, target_in), target_out = next(batches.epoch(0))
        >>> source.tolist(), target_in.tolist(), target_out.tolist()
        ([[5, 6, 2, 0]], [[1, 7, 0, 0]], [[7, 2, 0, 0]])
    """

    parts = (("source", "target_in"), "target_out")

    def __init__(
        self, sources, targets, *, start_id, end_id, lengths, tokens_per_batch, seed=0, pad_id=0
    ):
        got = f"{len(sources)} sources and {len(targets)} targets"
        check(len(sources) == len(targets), "sources, targets", "one target for each source", got)
        _check_ids("sources", sources, pad_id)
        _check_ids("targets", targets, pad_id)
        self.start_id, self.end_id, self.pad_id = start_id, end_id, pad_id
        super().__init__(
            [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)],
            lambda rows, length: self._matrices([(sources[r], targets[r]) for r in rows], length),
            lengths=lengths,
            tokens_per_batch=tokens_per_batch,
            seed=seed,
            fills=(pad_id,) * 3,
        )
        expected = f"a pair of at most {lengths[-1] - 1} tokens per side"
        check(self._buckets, "sources, targets", expected, f"{len(sources)} pairs, all longer")

    def epoch(self, epoch, first_step=0):
        """Yield the batches `((source, target_in), target_out)` of an epoch, int32 (B, L)."""
        for source, target_in, target_out in super().epoch(epoch, first_step):
            yield (source, target_in), target_out

    def _matrices(self, pairs, length):
        shape = (len(pairs), length)
        source, target_in, target_out = (np.full(shape, self.pad_id, np.int32) for _ in range(3))
        for row, (source_ids, target_ids) in enumerate(pairs):
            source[row, : len(source_ids) + 1] = [*source_ids, self.end_id]
            target_in[row, : len(target_ids) + 1] = [self.start_id, *target_ids]
            target_out[row, : len(target_ids) + 1] = [*target_ids, self.end_id]
        return source, target_in, target_out


def _check_ids(name, rows, pad_id):
    """Refuse padding inside a text, which models block and losses leave out."""
    for number, row in enumerate(rows):
        if pad_id in row:
            expected = f"texts without padding, the id {pad_id}"
            got = f"it in text {number}"
            raise ArgumentError(name, expected, got, "Pass pad_id=model.pad_id.")


class LanguageModelBatches(Buckets):
    """Documents of token ids, cut into blocks, as a `tf.data` pipeline for `model.fit`.

    A start and an end token are added to each document, which is then cut into blocks of the
    largest length; the last one may be shorter. Labels are the tokens shifted by one, so every
    token but the start is predicted once. See `Buckets` for the batches. Raises a ValueError if
    there are no documents, one contains padding, or the lengths do not increase.

    Args:
        documents: list of lists of int token ids, without start or end.
        start_id, end_id: int, ids added before and after; `start_id` may be None, as for Qwen2.
        lengths, tokens_per_batch, seed: see `Buckets`.
        pad_id: int, the model's `pad_id`; or None if it has none, as GPT-2: labels then have -100,
            which losses leave out, and ids 0, after all tokens, where it changes no other output.

    Example:
        >>> options = {"start_id": 1, "end_id": 2, "lengths": (3,), "tokens_per_batch": 6}
        >>> batches = LanguageModelBatches([[5, 6, 7]], **options)
        >>> ids, labels = next(batches.epoch(0))
        >>> sorted(ids.tolist()), sorted(labels.tolist())
        ([[1, 5, 6], [7, 0, 0]], [[2, 0, 0], [5, 6, 7]])
    """

    parts = ("ids", "labels")

    def __init__(self, documents, *, start_id, end_id, lengths, tokens_per_batch, seed=0, pad_id=0):
        check(documents, "documents", "at least one", "none")
        _check_ids("documents", documents, pad_id)
        most = max([1, *lengths])
        blocks = []  # each with one more token, its last label
        for document in documents:
            tokens = [*([] if start_id is None else [start_id]), *document, end_id]
            blocks += [tokens[at : at + most + 1] for at in range(0, len(tokens) - 1, most)]

        fills = (0, -100) if pad_id is None else (pad_id, pad_id)

        def matrices(rows, length):
            ids, labels = (np.full((len(rows), length), fill, np.int32) for fill in fills)
            for n, row in enumerate(rows):
                block = blocks[row]
                ids[n, : len(block) - 1], labels[n, : len(block) - 1] = block[:-1], block[1:]
            return ids, labels

        super().__init__(
            [len(block) - 1 for block in blocks],
            matrices,
            lengths=lengths,
            tokens_per_batch=tokens_per_batch,
            seed=seed,
            fills=fills,
        )


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
        >>> next(batches.epoch(0))[1].shape
        (4, 16)
    """

    def __init__(self, pairs, *, start_id, end_id, lengths, tokens_per_batch, seed=0):
        check_buckets(lengths, tokens_per_batch)
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
        self._steps = (-(-self._counts // self._batch_sizes)).sum(1)  # of each shard
        expected = f"a pair of at most {lengths[-1] - 1} tokens per side"
        check(self._counts.any(), "lengths", expected, f"{len(pairs)} pairs, all longer")

    @property
    def shapes(self):
        """The shapes (B, L) that occur, one for each non-empty bucket."""
        sizes = zip(self._batch_sizes, self._settings["lengths"], strict=True)
        return list(itertools.compress(sizes, self._counts.any(0)))

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return int(self._steps.sum())

    def epoch(self, epoch, first_step=0):
        """Yield the batches of an epoch, see `BucketedBatches`; skipped shards are not read."""
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.pairs.shards))
        steps = self._steps[order]
        ends = np.cumsum(steps)
        begun = int(np.searchsorted(ends, first_step, side="right"))
        left = [int(number) for number in order[begun:] if self._steps[number]]
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
