"""Translating a file of any size line by line, resumable."""

import dataclasses
import functools
import hashlib
import json
import operator
import os
from pathlib import Path

from tf_transformer.data.readers import check_plain_text, one_line, text_of_line
from tf_transformer.data.replacing import replacing
from tf_transformer.errors import ArgumentError, ExistingFileError, MissingFileError
from tf_transformer.export.translation.translate_texts import translate_texts
from tf_transformer.json_text import parse_json

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

    A few thousand lines are read, translated in batches of similar length, and written in their
    original order before the next ones are read, so memory does not grow with the file. They are
    written to `TARGET.unfinished`, which is renamed to the target at the end;
    `TARGET.unfinished.json` records the progress. After a stop, the same call resumes.

    Args:
        translator: a `Translator` or a loaded one.
        source: str or Path, UTF-8; invalid bytes are replaced by U+FFFD; a byte order mark, and
            everything beyond the first 64 KiB of a line, is dropped.
        target: str or Path of a new file.
        beam, sample, tokens_per_batch: see `translate_texts`.
        lines_at_once: int, number of lines sorted together; fewer if they exceed 1 MiB.
        progress: None, or a function called after each batch with the number of translated lines
            and the share of the source they make up, 0.0 to 1.0. A stop loses the current part,
            which is written as a whole.
        counted: None, or a function called with the number of the first line, from 1, and the
            token counts of the lines of a part, e.g. to report lines too long for the model.

    Returns:
        int, the number of lines.

    Raises:
        FileNotFoundError: If there is no such source, or no folder for the target.
        FileExistsError: If the target exists.
        ValueError: If the source is gzipped, a number is out of range, the unfinished target
            belongs to another source, model or other settings, or another process is writing it.
        OSError: If the disk is full; what was written is kept.

    Example:
        >>> from tf_transformer.export.translation.saved_translator import load_translator
        >>> from tf_transformer.export.translation.shipped_models import shipped_model
        >>> _ = Path("lines.en").write_text("Thank you.\\nI love China.\\n")
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> translate_file(translator, "lines.en", "lines.zh")
        2
        >>> Path("lines.zh").read_text(encoding="utf-8").splitlines()
        ['谢谢你。', '我爱中国。']
    """
    source, target = Path(source), Path(target)
    if lines_at_once < 1:
        raise ArgumentError("lines_at_once", "at least 1", lines_at_once)
    unfinished = _unfinished(source, target)
    notes = unfinished.with_name(unfinished.name + ".json")
    settings = {"beam": beam, "model": _fingerprint(translator), "decoding": _settings(translator)}
    if sample is not None:
        settings["sample"] = dataclasses.asdict(sample)
    size = source.stat().st_size
    with open(source, "rb") as lines, open(unfinished, "ab") as output:
        _lock(output)
        done, digest = _go_on(notes, settings, lines, output)
        share = lines.tell() / max(size, 1)
        while chunk := list(_some_lines(lines, lines_at_once, digest)):
            before, share = share, lines.tell() / size
            translations = translate_texts(
                translator,
                chunk,
                beam=beam,
                # Each part draws other random numbers, and the same ones after a stop.
                sample=sample and dataclasses.replace(sample, seed=sample.seed + done),
                tokens_per_batch=tokens_per_batch,
                counted=counted and functools.partial(counted, done + 1),
                progress=progress and _within(progress, done, len(chunk), before, share),
            )
            output.write("".join(f"{one_line(text)}\n" for text in translations).encode("utf-8"))
            output.flush()
            os.fsync(output.fileno())
            done += len(chunk)
            _record(notes, settings, done, lines, digest, output)
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
    try:
        import fcntl
    except ImportError:  # Windows, which has other locks
        return
    try:
        fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ArgumentError(
            "target",
            "a file that no other process is writing",
            output.name,
            "Wait for that process, or choose another target.",
        ) from error
    except OSError:  # a file system without locks
        return


def _within(progress, done, count, before, after):
    """The progress within a part; its end is reported once it is written."""

    def tell(translated):
        if translated < count:
            progress(done + translated, before + (after - before) * translated / count)

    return tell


def _record(notes, settings, done, lines, digest, output):
    """Write the progress that `_go_on` reads."""
    state = {
        **settings,
        "lines": done,
        "source_bytes": lines.tell(),
        "source_sha256": digest.hexdigest(),
        "target_bytes": output.tell(),
    }
    with replacing(notes) as beside:
        beside.write_text(json.dumps(state) + "\n", encoding="utf-8")


def _go_on(notes, settings, lines, output):
    """Seek both files to the recorded progress; return the lines done and the digest so far."""
    digest = hashlib.sha256()
    if not notes.exists():
        output.truncate(0)
        return 0, digest
    start_over = f"Delete {notes} to start over."
    try:
        state = parse_json(notes.read_bytes())
        same = {name: state[name] for name in settings} == settings
        names = "lines", "source_bytes", "target_bytes"
        done, read, written = (operator.index(state[name]) for name in names)
        expected = state["source_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            "target", "the progress in JSON", f"{error!r}", start_over, place=notes
        ) from error
    if not same:
        raise ArgumentError(
            "target",
            f"the progress with {settings}",
            "that of another model or other settings",
            start_over,
            place=notes,
        )
    while left := read - lines.tell():
        block = lines.read(min(left, 2**20))
        if not block:
            break
        digest.update(block)
    if digest.hexdigest() != expected or output.tell() < written:
        raise ArgumentError(
            "target",
            "the progress of this source and this unfinished target",
            "that of others",
            start_over,
            place=notes,
        )
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


def _settings(translator):
    found = getattr(translator, "settings", None)  # missing in exports of earlier versions
    return {} if found is None else json.loads(found.numpy())


def _fingerprint(translator):
    digest = hashlib.sha256()
    for weight in translator.weights:
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()
