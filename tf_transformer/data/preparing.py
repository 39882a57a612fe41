"""Encoding pairs, which need not fit into memory, into shards."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import numpy as np

from tf_transformer import __version__
from tf_transformer.data.batches import FORMAT, MANIFEST
from tf_transformer.data.files import (
    check_aligned,
    is_gzipped,
    iterate_lines,
    locked,
    opened,
    pair_of_lines,
    replacing,
    write_json,
)
from tf_transformer.data.source import comparable, pairs_without, split_pairs, uniform
from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.json_text import parse_json
from tf_transformer.tokenizers import Tokenizer, train_subwords
from tf_transformer.tokenizers.models import SUBWORDS

_BLOCK = 2**24  # bytes read at once to count lines
_LINES = 200_000  # per part
_AT_ONCE = 1024  # pairs tokenized at once
_FRAME = 16  # bytes of a record in addition to its content
_PAIRS = 100_000  # per shard, which training keeps in memory
_HELD_OUT = 2000  # pairs in each of the test and validation sets
_SAMPLE = 1_000_000  # pairs that the vocabulary is learned from
_DRAW_MORE = 1.2  # margin, since a random draw may give fewer than expected


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
        names = _names(self.files)
        sides = [
            itertools.islice(iterate_lines(path, name, self.first, start), self.lines)
            for path, name, start in zip(self.files, names, self.starts, strict=True)
        ]
        for number, lines in enumerate(zip(*sides, strict=True), start=self.first):
            yield pair_of_lines(lines, self.files, names, number)


def processors():
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _names(files):
    """Return the arguments that a TSV file or two aligned files came from."""
    return ("tsv",) if len(files) == 1 else ("source_file", "target_file")


def cut_into_parts(files, lines_per_part):
    """Cut files into parts; a file that is gzipped is a part of its own."""
    parts = []
    for together in files:
        given = list(zip(together, _names(together), strict=True))
        every = None if any(is_gzipped(*each) for each in given) else lines_per_part
        starts, counts = zip(*(_line_starts(*each, every) for each in given), strict=True)
        check_aligned(together, counts)
        count = counts[0]
        check(count, given[0][1], f"at least one line of text in {together[0]}")
        for n, places in enumerate(zip(*starts, strict=True)):
            first = n * (every or 0)
            size = min(every or count, count - first)
            parts.append(Part(len(parts), tuple(together), first + 1, size, places))
    return parts


def _line_starts(path, argument, every):
    """Return the position of every `every`-th line, and the number of lines."""
    starts, count, position, last = [0], 0, 0, b"\n"
    with opened(path, argument) as file:
        while block := file.read(_BLOCK):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            if every:
                starts += (position + 1 + ends[every - 1 - count % every :: every]).tolist()
            count, position, last = count + len(ends), position + len(block), block[-1:]
    count += last != b"\n"
    return starts[: -(-count // every)] if every else starts, count


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
    write_json(path, found, indent=None)


def encode_part(part, path, tokenizer_path, held_out_path, count):
    """Write the ids of a part's pairs to a TFRecord file, sorted by shard, and its index."""
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
            records[shard].append(_example(source=source, target=target))
            sizes[shard][max(len(source), len(target))] += 1
    index, file = {}, path.with_suffix(".tfrecord")
    with replacing(file) as beside, tf.io.TFRecordWriter(str(beside)) as writer:
        for shard in sorted(records):
            for record in records[shard]:
                writer.write(record)
            size = sum(len(record) + _FRAME for record in records[shard])
            index[shard] = {"bytes": size, "sizes": dict(sorted(sizes[shard].items()))}
    write_json(path, index, indent=None)


def _example(**sides):
    import tensorflow as tf

    lists = {name: tf.train.Int64List(value=ids) for name, ids in sides.items()}
    features = {name: tf.train.Feature(int64_list=ids) for name, ids in lists.items()}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


# Cached because a process of the pool encodes many parts.
_tokenizer = functools.cache(Tokenizer.load)


@functools.cache
def _held_out(path):
    return frozenset(parse_json(path.read_bytes()))


def prepare_pairs(
    source, folder, *, subword="bpe", vocab_size=8000, validation=None, workers=1, progress=None
):
    """Turn sentence pairs into shards of token ids that `TrainingRun` reads one at a time.

    The memory needed does not grow with the data: the files are read twice, first to draw the
    held-out sets and a sample for the vocabulary. The same call resumes after an interruption. The
    result does not depend on `workers`. Returns the path.

    prepared.json       the manifest, for `PreparedPairs`
    tokenizer.json      the joint vocabulary
    shard-*.tfrecord    the ids; a shard is a random part of the pairs
    validation.tsv, test.tsv  pairs that share no sentence, on either side, with the others

    Args:
        source: `PairSource`. An included corpus keeps its test and validation sets; from files, a
            50th of the pairs, at most 2,000, is held out for each.
        folder: str or Path, the folder to write.
        subword: str, "bpe", "wordpiece" or "unigram".
        vocab_size, workers: ints, the number of ids and of parallel processes.
        validation: None, or `PairSource`, a validation set of your own.
        progress: None, or a function called with the name of the current stage, the number of
            finished parts and the number of all parts.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a line cannot be read, the folder is already prepared, was begun with other
            settings or files or is in use by another process, there are too few pairs, or an
            argument is out of range.

    Example:
        >>> from tf_transformer.data import PairSource
        >>> _ = Path("pairs.tsv").write_text("".join(f"a {n}\\tb {n}\\n" for n in range(500)))
        >>> prepare_pairs(PairSource(tsv="pairs.tsv"), "prepared", vocab_size=300).name
        'prepared'
    """
    folder = Path(folder)
    check_choice("subword", subword, SUBWORDS)
    check(workers >= 1, "workers", "at least 1", workers)
    if (folder / MANIFEST).exists():
        raise ArgumentError("folder", "a new folder", f"{folder}, which is prepared already")
    work = folder / "unfinished"  # an interrupted call resumes from it
    with locked(folder), _pool(workers) as run:
        parts = _parts(source, work)
        files = [(path, os.stat(path)) for part in parts if part.first == 1 for path in part.files]
        settings = {
            "source": dataclasses.asdict(source),
            "files": [[path, found.st_size, found.st_mtime_ns] for path, found in files],
            "subword": subword,
            "vocab_size": vocab_size,
            "validation": validation and dataclasses.asdict(validation),
        }
        _check_settings(work / "settings.json", settings)
        stage = functools.partial(_stage, run, progress or (lambda *_: None), work)
        try:
            scans, held_out = _draw(source, validation, parts, stage)
        except (ValueError, OSError):  # in the corrected files, lines start elsewhere
            shutil.rmtree(work)
            raise
        for name, held in held_out.items():
            _write_tsv(folder / f"{name}.tsv", held)
        pairs = itertools.chain(*held_out.values())
        sentences = {comparable(text) for pair in pairs for text in pair}
        write_json(work / "held-out.json", sorted(sentences), indent=None)
        if not (folder / "tokenizer.json").exists():
            texts = _sample(scans, sentences)
            train_subwords(subword, texts, vocab_size).save(folder / "tokenizer.json")
        shards = _encode(parts, work, folder, stage)
        del settings["files"]
        manifest = {"format": FORMAT, "version": __version__, **settings, "shards": shards}
        write_json(folder / MANIFEST, manifest)
        shutil.rmtree(work)
    return folder


def _check_settings(path, settings):
    if not path.exists():
        write_json(path, settings)
    begun = parse_json(path.read_bytes())
    if begun != json.loads(json.dumps(settings)):
        expected = f"the settings with which {path.parent.parent} was begun, {begun}"
        remedy = "Use them, choose another folder, or delete this one."
        raise ArgumentError("folder", expected, settings, remedy)


def _parts(source, work):
    """Return the parts of a source; an included corpus is written to a file."""
    if not source.corpus:
        return cut_into_parts(source.files, _LINES)
    pairs, path = source.load(), work / "corpus.tsv"
    if not path.exists():
        _write_tsv(path, pairs)
    return cut_into_parts([(str(path),)], _LINES)


def _draw(source, validation, parts, stage):
    """Scan all parts and choose the held-out sets: `{"validation": pairs, "test": pairs}`."""
    total = sum(part.lines for part in parts)
    wanted = min(_HELD_OUT, total // 50)
    shares = [min(1.0, _DRAW_MORE * count / total) for count in (2 * wanted, _SAMPLE)]
    scans = stage("reading", scan_part, parts, *shares)
    if source.corpus:
        split = split_pairs(source.load())
        found = {"validation": split.validation, "test": split.test}
    else:
        held_out = (parse_json(path.read_bytes())["held_out"] for path in scans)
        drawn = sorted(found for part in held_out for found in part)
        pairs = [tuple(pair) for _, *pair in drawn[: 2 * wanted]]
        found = {"test": pairs[:wanted]}
        found["validation"] = pairs_without(pairs[wanted:], found["test"])
    if validation is not None:
        found["validation"] = validation.load()
        found["test"] = pairs_without(found["test"], found["validation"])
    if not (found["validation"] and found["test"]):
        raise ArgumentError("data", "enough pairs for training, validation and test", total)
    return scans, found


def _sample(scans, held_out):
    """Return the texts that the vocabulary is learned from, in the order of the files."""
    scans = [parse_json(path.read_bytes())["sample"] for path in scans]
    draws = sorted(draw for scan in scans for draw, *_ in scan)
    most = draws[_SAMPLE - 1] if len(draws) > _SAMPLE else 1.0
    sample = (pair for scan in scans for draw, *pair in scan if draw <= most)
    kept = (pair for pair in sample if held_out.isdisjoint(map(comparable, pair)))
    return list(itertools.chain.from_iterable(kept))


def _encode(parts, work, folder, stage):
    """Write the shards and return their entries for the manifest."""
    count = -(-sum(part.lines for part in parts) // _PAIRS)
    files = folder / "tokenizer.json", work / "held-out.json"
    paths = stage("tokenizing", encode_part, parts, *files, count)
    indices = [(path.with_suffix(".tfrecord"), parse_json(path.read_bytes())) for path in paths]
    shards = []
    for number in range(count):
        sizes, name = collections.Counter(), f"shard-{number:05}.tfrecord"
        for _, index in indices:
            sizes.update(index.get(str(number), {"sizes": {}})["sizes"])
        if not sizes:
            continue
        if not (folder / name).exists():
            with replacing(folder / name) as new, open(new, "wb") as shard:
                for path, index in indices:
                    shard.write(_slice(path, index, number))
        sizes = dict(sorted(sizes.items(), key=lambda item: int(item[0])))
        shards.append({"name": name, "pairs": sum(sizes.values()), "sizes": sizes})
    return shards


def _slice(path, index, number):
    """Return the bytes of a shard from the file of a part, which is sorted by shard."""
    start = sum(found["bytes"] for shard, found in index.items() if int(shard) < number)
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(index.get(str(number), {"bytes": 0})["bytes"])


def _stage(run, progress, work, what, function, parts, *others):
    """Run a function for each part whose result is missing; return the paths of all results."""
    paths = [work / f"{what}-{part.number:05}.json" for part in parts]
    missing = [job for job in zip(parts, paths, strict=True) if not job[1].exists()]
    done = len(parts) - len(missing)
    progress(what, done, len(parts))
    for _ in run(function, [(*job, *others) for job in missing]):
        done += 1
        progress(what, done, len(parts))
    return paths


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


def _write_tsv(path, pairs):
    with replacing(path) as beside:
        beside.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
