"""A file of any size through a translator, line by line, and on after a stop."""

import dataclasses
import functools
import hashlib
import json
import os
from pathlib import Path

from tf_transformer.data.readers import check_plain_text, text_of_line
from tf_transformer.data.replacing import replacing
from tf_transformer.export.translation.translate_texts import one_line, translate_texts

_LONGEST_LINE = 2**16  # bytes; no model reads more, and a file may be one line
_LONGEST_PART = 2**20  # bytes; tokenising takes some forty times as much


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
    """Translate a text file, one line for each.

    Some thousand lines are read, translated in batches of like length, and written in their own
    order before the next are read, so the memory does not grow with the file. They go to
    `TARGET.unfinished`, which becomes the target in the end; `TARGET.unfinished.json` says how
    far it has come. After a stop the same call goes on there.

    Args:
        translator: a `Translator` or a loaded one.
        source: str or Path, UTF-8; what is none is replaced by U+FFFD, and what a line has beyond
            64 KiB is left out, as is a byte order mark.
        target: str or Path of a new file.
        beam, sample, tokens_per_batch: see `translate_texts`.
        lines_at_once: int, the lines that are sorted together; fewer, once they have 1 MiB.
        progress: None, or a function called after each batch with the number of lines that are
            translated and the share of the source that they are, 0.0 to 1.0. A stop loses those
            of the present part, which are written together.
        counted: None, or a function called with the number of the first line, from 1, and the
            tokens of the lines that are translated next: to say which are too long for the model.

    Returns:
        int, the number of lines.

    Raises:
        FileNotFoundError: no such source; no folder for the target.
        FileExistsError: the target is there already.
        ValueError: a gzipped source; an unfinished target of another source, another model or
            other settings, or one that another process writes at this time; a number out of range.
        OSError: the disk is full; what was written is kept.

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
        raise ValueError(f"lines_at_once: expected at least 1, got {lines_at_once}.")
    check_plain_text(source, "source")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"target: expected a file in a folder, got no folder for {target}")
    if target.exists():
        raise FileExistsError(f"target: expected a new file, got one that is there: {target}")
    unfinished = target.with_name(target.name + ".unfinished")
    if source.resolve() == unfinished.resolve():
        raise ValueError(
            f"source, target: expected a source that is not the unfinished target, got {source}."
        )
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
                # Each part draws other numbers, the same ones after a stop.
                sample=sample and dataclasses.replace(sample, seed=sample.seed + done),
                tokens_per_batch=tokens_per_batch,
                counted=counted and functools.partial(counted, done + 1),
                progress=progress and _within(progress, done, len(chunk), before, share),
            )
            output.write("".join(f"{one_line(text)}\n" for text in translations).encode("utf-8"))
            output.flush()
            os.fsync(output.fileno())
            done += len(chunk)
            state = {
                **settings,
                "lines": done,
                "source_bytes": lines.tell(),
                "source_sha256": digest.hexdigest(),
                "target_bytes": output.tell(),
            }
            with replacing(notes) as beside:
                beside.write_text(json.dumps(state) + "\n", encoding="utf-8")
            if progress:
                progress(done, share)
    os.replace(unfinished, target)
    notes.unlink(missing_ok=True)
    return done


def _lock(output):
    """Keep a second process from writing the same file."""
    try:
        import fcntl
    except ImportError:  # Windows, whose files have other locks
        return
    try:
        fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(
            f"target: expected a file that nobody writes, got {output.name}, which another process "
            "writes. Wait for it, or choose another target."
        ) from error
    except OSError:  # a file system that has no locks
        return


def _within(progress, done, count, before, after):
    """How far `count` lines after those done are; their end is told once they are written."""

    def tell(translated):
        if translated < count:
            progress(done + translated, before + (after - before) * translated / count)

    return tell


def _go_on(notes, settings, lines, output):
    """Put both files where the notes say; the number of lines done, and the digest up to there."""
    digest = hashlib.sha256()
    if not notes.exists():
        output.truncate(0)
        return 0, digest
    begin_anew = f"Delete {notes} to begin anew."
    try:
        state = json.loads(notes.read_text(encoding="utf-8"))
        same = {name: state[name] for name in settings} == settings
        done, read, written = (state[name] for name in ("lines", "source_bytes", "target_bytes"))
        expected = state["source_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{notes}: expected notes in JSON, got {error!r}. {begin_anew}") from error
    if not same:
        raise ValueError(
            f"{notes}: expected the notes of {settings}, got those of another model or another "
            f"way of decoding. {begin_anew}"
        )
    while left := read - lines.tell():
        block = lines.read(min(left, 2**20))
        if not block:
            break
        digest.update(block)
    if digest.hexdigest() != expected or output.tell() < written:
        raise ValueError(
            f"{notes}: expected the notes of this source and of this unfinished target, got those "
            f"of others. {begin_anew}"
        )
    output.truncate(written)
    output.seek(written)
    return done, digest


def _some_lines(lines, count, digest):
    """Up to `count` lines as str, without their ends, or as many as have `_LONGEST_PART`."""
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
    found = getattr(translator, "settings", None)  # none in exports of earlier versions
    return {} if found is None else json.loads(found.numpy())


def _fingerprint(translator):
    digest = hashlib.sha256()
    for weight in translator.weights:
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()
