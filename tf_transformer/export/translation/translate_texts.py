"""Translating texts and files in batches."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import operator
import os
import zlib
from pathlib import Path

import tensorflow as tf

from tf_transformer.data.files import (
    check_plain_text,
    lock_file,
    one_line,
    text_of_line,
    write_json,
)
from tf_transformer.errors import (
    ArgumentError,
    ExistingFileError,
    MissingFileError,
    check,
    check_texts,
)
from tf_transformer.export.translation.translator import cores
from tf_transformer.functional.tensors import check_range
from tf_transformer.json_text import parse_json

_MOST_AT_ONCE = 8  # each batch being decoded needs its own memory


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The settings of `sample_decode` for any number of texts.

    Args:
        seed: int; the same seed and the same texts give the same translations.
        temperature: float above 0; values below 1 favor likely tokens.
        top_k: None, or int of at least 1: only the k most likely tokens.
        top_p: float above 0, at most 1: only the most likely tokens with this total probability.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> Sampling(seed=1, top_k=20).temperature
        1.0
    """

    seed: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        check_range("seed", self.seed, 0)
        check_range("temperature", self.temperature, 0.0, above=True)
        check_range("top_k", self.top_k, 1)
        check_range("top_p", self.top_p, 0.0, 1.0, above=True)

    def arguments(self, first):
        """The arguments of `translate_sample` for the batch after the `first` texts: a dict."""
        # Each batch draws other numbers; the seed is below 2^31.
        seed = zlib.crc32(f"{self.seed} {first}".encode()) >> 1
        return {
            "seed": tf.constant(seed, tf.int32),
            "temperature": tf.constant(self.temperature, tf.float32),
            "top_k": tf.constant(self.top_k or tf.int32.max, tf.int32),
            "top_p": tf.constant(self.top_p, tf.float32),
        }


def translate_texts(
    translator,
    texts,
    *,
    beam=False,
    sample=None,
    tokens_per_batch=2048,
    progress=None,
    counted=None,
):
    """Translate texts in batches of similar length, on a CPU as many at once as it has cores.

    A process that does nothing else should start with TF_NUM_INTRAOP_THREADS=1, as the command
    `translate` does (benchmarks/decoding/NOTES.md).

    Args:
        translator: a `Translator` or a loaded one.
        texts: list of str.
        beam: bool, whether to use `translate_beam` and return the best of each n-best list.
        sample: None, or `Sampling`, to use `translate_sample`. With neither, decoding is greedy.
        tokens_per_batch: int, most tokens of a batch, with padding; a longer text is one alone.
        progress: None, or a function called with the number of finished texts.
        counted: None, or a function called at first with the number of tokens of each text,
            without the end token, e.g. to report texts too long for the model.

    Returns:
        list of str, in the order of `texts`.

    Raises:
        ValueError: If `tokens_per_batch` is below 1, both `beam` and `sample` are given, or `texts`
            is one string.

    Example:
        >>> from tf_transformer.export import load_translator, shipped_model
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> len(translate_texts(translator, ["Hello!", ""]))
        2
    """
    check(not beam or sample is None, "beam, sample", "at most one of them", "both")

    def translate(batch, first):
        if beam:
            translations = translator.translate_beam(batch)["translations"][:, 0]
        elif sample is None:
            translations = translator.translate(batch)
        else:
            translations = translator.translate_sample(batch, **sample.arguments(first))
        return [text.decode("utf-8") for text in translations.numpy()]

    return _in_batches(translate, translator, texts, tokens_per_batch, progress, counted)


def n_best_translations(translator, texts, *, tokens_per_batch=2048, progress=None, counted=None):
    """Translate texts with beam search, and return the n-best lists.

    Args:
        translator, texts, tokens_per_batch, progress, counted: see `translate_texts`.

    Returns:
        list of the n-best list of each text: n `(translation, score)`, best first; "" with -inf
        where there are fewer. n was set when the model was exported.

    Example:
        >>> from tf_transformer.export import load_translator, shipped_model
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> n_best_translations(translator, ["Thank you."])[0][0][0]
        '谢谢你。'
    """

    def translate(batch, first):
        found = translator.translate_beam(batch)
        scores = found["scores"].numpy().tolist()
        texts = [[text.decode("utf-8") for text in row] for row in found["translations"].numpy()]
        return [[*zip(*row, strict=True)] for row in zip(texts, scores, strict=True)]

    return _in_batches(translate, translator, texts, tokens_per_batch, progress, counted)


def count_tokens(translator, texts):
    """Count the tokens of texts, without the end token."""
    return translator.tokenizer.encode_strings(_strings(texts)).row_lengths().numpy().tolist()


def _in_batches(translate, translator, texts, tokens_per_batch, progress, counted):
    check_range("tokens_per_batch", tokens_per_batch, 1)
    lengths = count_tokens(translator, texts)
    if counted:
        counted(lengths)
    batches = batches_by_length(lengths, tokens_per_batch)
    strings = (_strings([texts[i] for i in rows]) for rows in batches)
    before = itertools.accumulate(map(len, batches), initial=0)
    results, done = [None] * len(texts), 0
    # An error or Ctrl-C ends the iterator of `map`, which drops the batches that wait.
    with concurrent.futures.ThreadPoolExecutor(min(cores(), _MOST_AT_ONCE)) as threads:
        for rows, found in zip(batches, threads.map(translate, strings, before), strict=True):
            for i, result in zip(rows, found, strict=True):
                results[i] = result
            done += len(rows)
            if progress:
                progress(done)
    return results


def batches_by_length(lengths, tokens_per_batch):
    """Divide texts into batches of similar length."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = []
    for i in order:
        if batches and tokens_per_batch // (lengths[batches[-1][0]] + 1) > len(batches[-1]):
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def _strings(texts):
    check_texts("texts", texts)
    # Encoded here, so that lone surrogates, which UTF-8 cannot encode, do not fail the batch.
    return tf.constant([text.encode("utf-8", "replace") for text in texts], tf.string)


_LONGEST_LINE = 2**16  # bytes; no model reads more, and a file may be a single line
_LONGEST_PART = 2**20  # bytes; tokenization takes about forty times as much memory


def translate_file(
    translator,
    source,
    target,
    *,
    beam=False,
    sample=None,
    tokens_per_batch=2048,
    lines_at_once=4096,
    progress=None,
    counted=None,
):
    """Translate a text file line by line.

    A few thousand lines at a time are translated in batches of similar length, and written to
    `TARGET.unfinished`, which is renamed to the target at the end; `TARGET.unfinished.json` records
    the progress. After a stop, the same call resumes.

    Args:
        translator: a `Translator` or a loaded one.
        source: str or Path, UTF-8; invalid bytes are replaced by U+FFFD; a byte order mark, and
            everything beyond the first 64 KiB of a line, is dropped.
        target: str or Path of a new file.
        beam, sample, tokens_per_batch: see `translate_texts`.
        lines_at_once: int, number of lines sorted together; fewer if they exceed 1 MiB.
        progress: None, or a function called after each batch with the number of translated lines
            and their share of the source, 0.0 to 1.0. A stop loses the current part.
        counted: None, or a function called with the number of the first line, from 1, and the
            token counts of the lines of a part.

    Returns:
        int, the number of lines.

    Raises:
        FileNotFoundError: If there is no such source, or no folder for the target.
        FileExistsError: If the target exists.
        ValueError: If the source is gzipped, a number is out of range, the unfinished target
            belongs to another source, model or other settings, or another process is writing it.

    Example:
        >>> from tf_transformer.export import load_translator, shipped_model
        >>> _ = Path("lines.en").write_text("Thank you.\\nI love China.\\n")
        >>> translate_file(load_translator(shipped_model("en-zh")), "lines.en", "lines.zh")
        2
        >>> Path("lines.zh").read_text(encoding="utf-8").splitlines()
        ['谢谢你。', '我爱中国。']
    """
    source, target = Path(source), Path(target)
    check_range("lines_at_once", lines_at_once, 1)
    unfinished = _unfinished(source, target)
    notes = unfinished.with_name(unfinished.name + ".json")
    settings, size = _settings(translator, beam, sample), source.stat().st_size
    with open(source, "rb") as lines, open(unfinished, "ab") as output:
        _lock(output)
        done, digest = _resume(notes, settings, lines, output)
        share = lines.tell() / max(size, 1)
        while chunk := list(_some_lines(lines, lines_at_once, digest)):
            before, share = share, lines.tell() / size
            within = functools.partial(_within, progress, done, len(chunk), before, share)
            translations = translate_texts(
                translator,
                chunk,
                beam=beam,
                # Each part draws other random numbers, and the same ones after a stop.
                sample=sample and dataclasses.replace(sample, seed=sample.seed + done),
                tokens_per_batch=tokens_per_batch,
                counted=counted and functools.partial(counted, done + 1),
                progress=progress and within,
            )
            output.write("".join(f"{one_line(text)}\n" for text in translations).encode("utf-8"))
            output.flush()
            os.fsync(output.fileno())
            done += len(chunk)
            places = {"source_bytes": lines.tell(), "target_bytes": output.tell()}
            state = {**settings, "lines": done, **places, "source_sha256": digest.hexdigest()}
            write_json(notes, state)
            if progress:
                progress(done, share)
    os.replace(unfinished, target)
    notes.unlink(missing_ok=True)
    return done


def _unfinished(source, target):
    """Check source and target; return the path of the unfinished target."""
    check_plain_text(source, "source")
    if not target.parent.is_dir():
        raise MissingFileError("target", "a file in a folder", f"no folder for {target}")
    if target.exists():
        raise ExistingFileError("target", "a new file", f"an existing one: {target}")
    unfinished = target.with_name(target.name + ".unfinished")
    if source.resolve() == unfinished.resolve():
        raise ArgumentError("source, target", "a source that is not the unfinished target", source)
    return unfinished


def _lock(output):
    """Prevent a second process from writing the same file."""
    expected = "a file that no other process is writing"
    remedy = "Wait for that process, or choose another target."
    with contextlib.suppress(OSError):  # a file system without locks
        check(lock_file(output), "target", expected, output.name, remedy)


def _within(progress, done, count, before, after, translated):
    """Report the progress within a part, whose end is reported once it is written."""
    if translated < count:
        progress(done + translated, before + (after - before) * translated / count)


def _resume(notes, settings, lines, output):
    """Seek both files to the recorded progress; return the lines done and the digest so far."""
    digest = hashlib.sha256()
    if not notes.exists():
        output.truncate(0)
        return 0, digest
    remedy = f"Delete {notes} to start over."
    refused = functools.partial(ArgumentError, "target", remedy=remedy, place=notes)
    try:
        state = parse_json(notes.read_bytes())
        same = {name: state[name] for name in settings} == settings
        names = "lines", "source_bytes", "target_bytes"
        done, read, written = (operator.index(state[name]) for name in names)
        sha256 = state["source_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise refused(expected="the progress in JSON", got=f"{error!r}") from error
    if not same:
        expected = f"the progress with {settings}"
        raise refused(expected=expected, got="that of another model or other settings")
    while left := read - lines.tell():
        block = lines.read(min(left, 2**20))
        if not block:
            break
        digest.update(block)
    if digest.hexdigest() != sha256 or output.tell() < written:
        expected = "the progress of this source and this unfinished target"
        raise refused(expected=expected, got="that of others")
    output.truncate(written)
    output.seek(written)
    return done, digest


def _some_lines(lines, count, digest):
    """Up to `count` lines as str without line ends, at most `_LONGEST_PART` bytes."""
    start = lines.tell()
    for _ in range(count):
        first = lines.tell() == 0
        line = rest = lines.readline(_LONGEST_LINE)
        if not line:
            return
        digest.update(line)
        while not rest.endswith(b"\n") and (rest := lines.readline(_LONGEST_LINE)):
            digest.update(rest)
        yield text_of_line(line, first)
        if lines.tell() - start >= _LONGEST_PART:
            return


def _settings(translator, beam, sample):
    """What a resumed call must have in common with the stopped one."""
    digest = hashlib.sha256()
    for weight in translator.weights:
        digest.update(weight.numpy().tobytes())
    decoding = getattr(translator, "settings", None)
    decoding = {} if decoding is None else json.loads(decoding.numpy())
    settings = {"beam": beam, "model": digest.hexdigest(), "decoding": decoding}
    return settings if sample is None else {**settings, "sample": dataclasses.asdict(sample)}
