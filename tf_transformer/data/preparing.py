"""Encoding pairs, which need not fit into memory, into shards."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import gzip
import itertools
import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

from tf_transformer import __version__
from tf_transformer.data.files import locked, replacing
from tf_transformer.data.prepared_pairs import FORMAT, MANIFEST, write_tsv
from tf_transformer.data.readers import (
    BYTE_ORDER_MARK,
    GZIP_MAGIC,
    check_exists,
    complete_gzip,
    decoded,
    pair_of_columns,
    text_of,
)
from tf_transformer.data.split import comparable, pairs_without, split_pairs, uniform
from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers import Tokenizer, train_subwords
from tf_transformer.tokenizers.models import SUBWORDS

_BLOCK = 2**24  # bytes read at once to count lines


@dataclasses.dataclass(frozen=True)
class Part:
    """Consecutive lines of a TSV file or of two aligned files."""

    number: int
    files: tuple
    first: int
    lines: int
    starts: tuple

    def pairs(self):
        """Yield the pairs `(source, target)`, stripped strings."""
        if len(self.files) == 1:
            [path] = self.files
            for number, line in self._lines(path, "tsv", self.starts[0]):
                yield pair_of_columns(line, "tsv", path, number)
            return
        names = "source_file", "target_file"
        sides = [self._lines(*given) for given in zip(self.files, names, self.starts, strict=True)]
        for (number, source), (_, target) in zip(*sides, strict=True):
            yield (
                text_of(source, "source_file", self.files[0], number),
                text_of(target, "target_file", self.files[1], number),
            )

    def _lines(self, path, argument, start):
        with _opened(path) as file, complete_gzip(path, argument):
            if start:
                file.seek(start)
            for number, line in zip(range(self.first, self.first + self.lines), file, strict=False):
                raw = line.removesuffix(b"\n")
                if number == 1:
                    raw = raw.removeprefix(BYTE_ORDER_MARK)
                yield number, decoded(raw, argument, path, number)


def cut_into_parts(files, lines_per_part):
    """Cut files into parts."""
    parts = []
    for together in files:
        names = ("tsv",) if len(together) == 1 else ("source_file", "target_file")
        for path, name in zip(together, names, strict=True):
            check_exists(path, name)
        every = None if any(map(_is_gzipped, together)) else lines_per_part
        counted = [_line_starts(*given, every) for given in zip(together, names, strict=True)]
        lines = {path: count for path, (_, count) in zip(together, counted, strict=True)}
        if len(set(lines.values())) > 1:
            said = " and ".join(f"{count:,} lines in {path}" for path, count in lines.items())
            raise ArgumentError(
                "target_file",
                "as many lines as source_file",
                said,
                "Line n of one must translate line n of the other.",
            )
        count = max(lines.values())
        if not count:
            raise ArgumentError(names[0], f"at least one line of text in {together[0]}")
        for n, starts in enumerate(zip(*(starts for starts, _ in counted), strict=True)):
            first = n * (every or 0)
            size = min(every or count, count - first)
            parts.append(Part(len(parts), tuple(together), first + 1, size, starts))
    return parts


def _line_starts(path, argument, every):
    """Return the position of every `every`-th line, and the number of lines."""
    starts, count, position, ends = [0], 0, 0, True
    with _opened(path) as file, complete_gzip(path, argument):
        while block := file.read(_BLOCK):
            here = block.count(b"\n")
            if every and (count + here) // every > count // every:
                place = -1
                for _ in range(here):
                    place = block.index(b"\n", place + 1)
                    count += 1
                    if count % every == 0:
                        starts.append(position + place + 1)
            else:
                count += here
            position += len(block)
            ends = block.endswith(b"\n")
    count += not ends
    return starts[: -(-count // every)] if every else starts, count


def _is_gzipped(path):
    with open(path, "rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _opened(path):
    return gzip.open(path) if _is_gzipped(path) else open(path, "rb")


_AT_ONCE = 1024  # pairs tokenized at once
_FRAME = 16  # bytes of a record in addition to its content


def scan_part(part, path, held_out_share, sample_share):
    """Check every line of a part; draw a sample and candidates for the held-out sets."""
    found = {"held_out": [], "sample": []}
    for source, target in part.pairs():
        draw = uniform(comparable(source))
        if draw < held_out_share:
            found["held_out"].append([draw, source, target])
        draw = uniform(f"sample\t{source}\t{target}") if sample_share < 1 else 0.0
        if draw < sample_share:
            found["sample"].append([draw, source, target])
    with replacing(path) as beside:
        beside.write_text(json.dumps(found), "utf-8")


def encode_part(part, path, tokenizer_path, held_out_path, count):
    """Write the ids of a part's pairs to a TFRecord file, sorted by shard."""
    import tensorflow as tf

    tokenizer, held_out = _tokenizer(tokenizer_path), _held_out(held_out_path)
    records = collections.defaultdict(list)
    sizes = collections.defaultdict(collections.Counter)
    pairs = part.pairs()
    while chunk := list(itertools.islice(pairs, _AT_ONCE)):
        kept = [pair for pair in chunk if held_out.isdisjoint(map(comparable, pair))]
        ids = [tokenizer.encode([pair[side] for pair in kept]) for side in (0, 1)]
        for pair, source, target in zip(kept, *ids, strict=True):
            shard = int(uniform("\t".join(pair)) * count)
            records[shard].append(_example(source, target))
            sizes[shard][max(len(source), len(target))] += 1
    index = {}
    with replacing(path) as beside, tf.io.TFRecordWriter(str(beside)) as writer:
        for shard in sorted(records):
            for record in records[shard]:
                writer.write(record)
            index[shard] = {
                "bytes": sum(len(record) + _FRAME for record in records[shard]),
                "pairs": len(records[shard]),
                "sizes": dict(sorted(sizes[shard].items())),
            }
    with replacing(path.with_name(f"{path.name}.json")) as beside:
        beside.write_text(json.dumps(index), "utf-8")


def _example(source, target):
    import tensorflow as tf

    lists = {"source": source, "target": target}
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
        for name, ids in lists.items()
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


# Cached because a process of the pool encodes many parts.


@functools.cache
def _tokenizer(path):
    return Tokenizer.load(path)


@functools.cache
def _held_out(path):
    return frozenset(json.loads(path.read_text("utf-8")))


WORK = "unfinished"  # the folder from which an interrupted call resumes
_LINES = 200_000  # per part
_PAIRS = 100_000  # per shard, which training keeps in memory
_HELD_OUT = 2000  # pairs in each of the test and validation sets
_SAMPLE = 1_000_000  # pairs that the vocabulary is learned from
_DRAW_MORE = 1.2  # margin, since a random draw may give fewer than expected


def prepare_pairs(
    source, folder, *, subword="bpe", vocab_size=8000, validation=None, workers=1, progress=None
):
    """Turn sentence pairs into shards of token ids that `TrainingRun` reads one at a time.

    The memory needed does not grow with the data. The files are read twice: first to check every
    line and to draw the held-out sets and a sample for the vocabulary, then to write ids. The same
    call resumes after an interruption. The result does not depend on `workers`.

    prepared.json       the manifest, for `PreparedPairs`
    tokenizer.json      the joint vocabulary
    shard-*.tfrecord    the ids; a shard is a random part of the pairs
    validation.tsv, test.tsv  pairs that share no sentence, on either side, with the others

    Args:
        source: `PairSource`. An included corpus keeps its test and validation sets; from files, a
            50th of the pairs, at most 2,000, is held out for each.
        folder: str or Path, the folder to write.
        subword: str, "bpe", "wordpiece" or "unigram".
        vocab_size: int, the number of ids.
        validation: None, or `PairSource`, a validation set of your own.
        workers: int, the number of parallel processes.
        progress: None, or a function called with the name of the current stage, the number of
            finished parts and the number of all parts.

    Returns:
        Path of the folder.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a line cannot be read, the folder is already prepared, was begun with other
            settings or files or is in use by another process, there are too few pairs, or an
            argument is out of range.

    Example:
        >>> from tf_transformer.data import PairSource
        >>> _ = Path("pairs.tsv").write_text("".join(f"a {n}\\tb {n}\\n" for n in range(500)))
        >>> path = prepare_pairs(PairSource(tsv="pairs.tsv"), "prepared", vocab_size=300)
        >>> sorted(file.name for file in path.iterdir())[:2]
        ['prepared.json', 'shard-00000.tfrecord']
    """
    folder = Path(folder)
    if subword not in SUBWORDS:
        raise ArgumentError("subword", f"one of {', '.join(SUBWORDS)}", f"{subword!r}")
    if workers < 1:
        raise ArgumentError("workers", "at least 1", workers)
    if (folder / MANIFEST).exists():
        raise ArgumentError("folder", "a new folder", f"{folder}, which is prepared already")
    work = folder / WORK
    with locked(folder), _pool(workers) as run:
        parts = _parts(source, work)
        settings = {
            "source": dataclasses.asdict(source),
            "files": [_stamp(path) for part in parts if part.first == 1 for path in part.files],
            "subword": subword,
            "vocab_size": vocab_size,
            "validation": validation and dataclasses.asdict(validation),
        }
        _check_settings(work / "settings.json", settings)
        report = functools.partial(_report, run, progress or (lambda *_: None))
        try:
            held_out = _draw(source, validation, parts, work, report)
        except (ValueError, OSError):  # in the corrected files, lines start elsewhere
            shutil.rmtree(work)
            raise
        for name, pairs in held_out.items():
            write_tsv(folder / f"{name}.tsv", pairs)
        _train_tokenizer(subword, vocab_size, held_out, parts, work, folder / "tokenizer.json")
        shards = _encode(parts, work, folder, report)
        del settings["files"]
        manifest = {"format": FORMAT, "version": __version__, **settings, "shards": shards}
        with replacing(folder / MANIFEST) as beside:
            beside.write_text(json.dumps(manifest) + "\n", "utf-8")
        shutil.rmtree(work)
    return folder


def _check_settings(path, settings):
    if not path.exists():
        with replacing(path) as beside:
            beside.write_text(json.dumps(settings), "utf-8")
    begun = json.loads(path.read_text("utf-8"))
    if begun != json.loads(json.dumps(settings)):
        raise ArgumentError(
            "folder",
            f"the settings with which {path.parent.parent} was begun, {begun}",
            settings,
            "Use them, choose another folder, or delete this one.",
        )


def _parts(source, work):
    """Return the parts of a source; an included corpus is written to a file."""
    if not source.corpus:
        return cut_into_parts(source.files, _LINES)
    pairs, path = source.load(), work / "corpus.tsv"
    if not path.exists():
        write_tsv(path, pairs)
    return cut_into_parts([(str(path),)], _LINES)


def _stamp(path):
    """Return values that change when the file does."""
    found = os.stat(path)
    return [str(path), found.st_size, found.st_mtime_ns]


def _draw(source, validation, parts, work, report):
    """Scan all parts and choose the held-out sets: `{"validation": pairs, "test": pairs}`."""
    total = sum(part.lines for part in parts)
    wanted = min(_HELD_OUT, total // 50)
    shares = (min(1.0, _DRAW_MORE * 2 * wanted / total), min(1.0, _DRAW_MORE * _SAMPLE / total))
    paths = [work / f"scan-{part.number:05}.json" for part in parts]
    jobs = [(part, path, *shares) for part, path in zip(parts, paths, strict=True)]
    report("reading", scan_part, jobs, paths)
    if source.corpus:
        split = split_pairs(source.load())
        found = {"validation": split.validation, "test": split.test}
    else:
        drawn = [found for path in paths for found in _read(path)["held_out"]]
        pairs = [tuple(pair) for _, *pair in sorted(drawn)[: 2 * wanted]]
        found = {"test": pairs[:wanted]}
        found["validation"] = pairs_without(pairs[wanted:], found["test"])
    if validation is not None:
        found["validation"] = validation.load()
        found["test"] = pairs_without(found["test"], found["validation"])
    if not (found["validation"] and found["test"]):
        raise ArgumentError("data", "enough pairs for training, validation and test", total)
    return found


def _train_tokenizer(subword, vocab_size, held_out, parts, work, path):
    """Learn the vocabulary from a sample, in the order of the files."""
    sentences = {comparable(text) for pairs in held_out.values() for pair in pairs for text in pair}
    with replacing(work / "held-out.json") as beside:
        beside.write_text(json.dumps(sorted(sentences)), "utf-8")
    if path.exists():
        return
    scans = [_read(work / f"scan-{part.number:05}.json")["sample"] for part in parts]
    draws = sorted(draw for scan in scans for draw, *_ in scan)
    most = draws[_SAMPLE - 1] if len(draws) > _SAMPLE else 1.0
    sample = (pair for scan in scans for draw, *pair in scan if draw <= most)
    texts = [
        text for pair in sample if sentences.isdisjoint(map(comparable, pair)) for text in pair
    ]
    train_subwords(subword, texts, vocab_size).save(path)


def _encode(parts, work, folder, report):
    """Write the shards and return their entries for the manifest."""
    total = sum(part.lines for part in parts)
    count = -(-total // _PAIRS)
    paths = [work / f"ids-{part.number:05}.tfrecord" for part in parts]
    beside = [path.with_name(f"{path.name}.json") for path in paths]
    fixed = folder / "tokenizer.json", work / "held-out.json", count
    jobs = [(part, path, *fixed) for part, path in zip(parts, paths, strict=True)]
    report("tokenizing", encode_part, jobs, beside)
    indices = [_read(path) for path in beside]
    shards = []
    for number in range(count):
        slices = [(path, index, str(number)) for path, index in zip(paths, indices, strict=True)]
        sizes, pairs, name = {}, 0, f"shard-{number:05}.tfrecord"
        for _, index, key in slices:
            pairs += index.get(key, {}).get("pairs", 0)
            for size, rows in index.get(key, {}).get("sizes", {}).items():
                sizes[size] = sizes.get(size, 0) + rows
        if not pairs:
            continue
        if not (folder / name).exists():
            with replacing(folder / name) as new, open(new, "wb") as shard:
                for given in slices:
                    shard.write(_slice(*given))
        sizes = dict(sorted(sizes.items(), key=lambda item: int(item[0])))
        shards.append({"name": name, "pairs": pairs, "sizes": sizes})
    return shards


def _slice(path, index, key):
    """Return the bytes of a shard from the file of a part, which is sorted by shard."""
    start = sum(found["bytes"] for other, found in index.items() if int(other) < int(key))
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(index.get(key, {}).get("bytes", 0))


def _report(run, progress, what, function, jobs, results):
    """Run the jobs whose result is missing."""
    missing = [job for job, result in zip(jobs, results, strict=True) if not result.exists()]
    done = len(jobs) - len(missing)
    progress(what, done, len(jobs))
    for _ in run(function, missing):
        done += 1
        progress(what, done, len(jobs))


@contextlib.contextmanager
def _pool(workers):
    """Yield a function that runs jobs, given as arguments of a function, in any order."""
    if workers == 1:
        yield lambda function, jobs: (function(*job) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context, _start) as pool:

        def run(function, jobs):
            futures = [pool.submit(function, *job) for job in jobs]
            try:
                for future in concurrent.futures.as_completed(futures):
                    yield future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

        yield run


def _start():
    """Set up a process of the pool: quiet, on one core, and stopped only by its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    saved = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
        import tensorflow  # noqa: F401  prints messages when imported

        os.dup2(saved, 2)
    os.close(saved)


def _read(path):
    return json.loads(path.read_text("utf-8"))
