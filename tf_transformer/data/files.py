"""Files: readers of text, pairs and the included corpora; atomic writing, and locked folders."""

import contextlib
import glob
import gzip
import json
import os
import re
import shutil
import socket
import zlib
from importlib import resources
from pathlib import Path

from tf_transformer.errors import ArgumentError, ExistingFileError, MissingFileError, check

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_files(source_file, target_file):
    """Read pairs `(source, target)` of stripped strings from two aligned files, as in WMT.

    Args:
        source_file, target_file: str or Path of UTF-8 text files, one sentence per line; may be
            gzipped.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is empty, damaged or not UTF-8, the line counts differ, or a line is
            blank.

    Example:
        >>> _ = Path("text.en").write_text("Hi."), Path("text.fr").write_text("Salut !")
        >>> read_files("text.en", "text.fr")
        [('Hi.', 'Salut !')]
    """
    return _read_pairs((source_file, target_file), ("source_file", "target_file"))


def read_tsv(path, argument="path"):
    """Read pairs of stripped strings from lines `source<TAB>target`; more columns are ignored.

    Args:
        path: str or Path of a UTF-8 text file; may be gzipped.
        argument: str, the name to use in errors.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is empty, damaged or not UTF-8, or a line has fewer than two
            columns or a blank one among the first two.

    Example:
        >>> _ = Path("pairs.tsv").write_text("Hi.\\tSalut !\\tsaid by Tom")
        >>> read_tsv("pairs.tsv")
        [('Hi.', 'Salut !')]
    """
    return _read_pairs((path,), (argument,))


def _read_pairs(paths, names):
    sides = [read_lines(*given) for given in zip(paths, names, strict=True)]
    check_aligned(paths, [len(side) for side in sides])
    lines = enumerate(zip(*sides, strict=True), start=1)
    return [pair_of_lines(together, paths, names, number) for number, together in lines]


def pair_of_lines(lines, paths, names, number):
    """Read the pair on line `number` of a TSV file, or of two aligned files."""
    if len(lines) == 1:
        paths, names, lines = 2 * paths, 2 * names, lines[0].split("\t")[:2]
        if len(lines) < 2:
            got = f"1 on line {number} of {paths[0]}"
            remedy = "Write source<TAB>target."
            raise ArgumentError(names[0], "at least 2 columns separated by a tab", got, remedy)
    source, target = (line.strip() for line in lines)
    if not (source and target):
        blank = 1 if source else 0
        expected, remedy = "text on both sides of every pair", "Remove that pair."
        got = f"a blank side on line {number} of {paths[blank]}"
        raise ArgumentError(names[blank], expected, got, remedy)
    return source, target


def check_aligned(paths, counts):
    """Check that aligned files have the same number of lines."""
    if len(set(counts)) > 1:
        found = zip(counts, paths, strict=True)
        got = " and ".join(f"{count:,} lines in {path}" for count, path in found)
        remedy = "Line n of one must translate line n of the other."
        raise ArgumentError("target_file", "as many lines as source_file", got, remedy)


def read_lines(path, argument):
    """Read the lines of one file, at least one of which must have text."""
    lines = list(iterate_lines(path, argument))
    got, remedy = f"{path}, which is empty", "Check that it was written completely."
    check(any(map(str.strip, lines)), argument, "at least one line of text", got, remedy)
    return lines


def iterate_lines(path, argument, first=1, start=0):
    """Yield the lines of a UTF-8 file from line `first` on, which begins at byte `start`."""
    with opened(path, argument) as file:
        file.seek(start)
        for number, line in enumerate(file, start=first):
            line = line.removesuffix(b"\n")
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                got = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of line {number}"
                remedy = "Convert the file to UTF-8."
                raise ArgumentError(argument, "UTF-8", f"{got} of {path}", remedy) from error


@contextlib.contextmanager
def opened(path, argument):
    """Open a file for reading bytes, unpacked if it is gzipped."""
    if not is_gzipped(path, argument):
        with open(path, "rb") as file:
            yield file
        return
    try:
        with gzip.open(path) as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        got = f"{path}, which is damaged ({error})"
        raise ArgumentError(argument, "a complete gzip file", got, "Download it again.") from error


def is_gzipped(path, argument):
    """Whether an existing file is gzipped: by content, as the suffix may be missing."""
    if not os.path.isfile(path):  # `is_file` raises an error for a name that is too long
        raise MissingFileError(argument, "a text file", f"no file {path}")
    with open(path, "rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def check_plain_text(path, argument):
    """Reject files that are not plain text before reading them line by line."""
    got, remedy = f"{path}, which is gzipped", f"Unpack it: gunzip {path}"
    check(not is_gzipped(path, argument), argument, "plain text", got, remedy)


def text_of_line(line, first=False):
    """Decode a raw line, replacing invalid bytes."""
    line = line.removeprefix(_BYTE_ORDER_MARK) if first else line
    return line.decode("utf-8", "replace").rstrip("\r\n")


def one_line(text):
    """Replace the tabs and line breaks of a translation with spaces."""
    return " ".join(text.replace("\t", " ").splitlines())


_STORED = {"en-fr": "en-fr", "en-zh": "en-zh", "fr-en": "en-fr", "zh-en": "en-zh"}


def load_corpus(name):
    """Read the pairs `(source, target)` of an included corpus from Tatoeba (CC-BY 2.0 FR).

    Many sentences appear in several pairs: `split_pairs` keeps test sentences out of training.
    Raises a ValueError if there is no corpus of that name.

    Args:
        name: "en-zh" (29,155 pairs), "en-fr" (25,000 short pairs), or "zh-en" or "fr-en", the same
            pairs in the other direction.

    Example:
        >>> load_corpus("en-zh")[0]
        ('Hi.', '嗨。')
    """
    pairs = [(english, other) for english, other, _ in _read_rows(name)]
    return pairs if _STORED[name] == name else [pair[::-1] for pair in pairs]


def load_attributions(name):
    """Read the attributions of the pairs of `load_corpus(name)`, a list of str in their order.

    The license requires this text wherever the sentences are redistributed; see
    `corpora/README.md`. It always names the English sentence first. Errors: see `load_corpus`.

    Example:
        >>> load_attributions("en-zh")[0]
        'CC-BY 2.0 (France) Attribution: tatoeba.org #538123 (CM) & #891077 (Martha)'
    """
    return [attribution for _, _, attribution in _read_rows(name)]


def _read_rows(name):
    expected = f"one of {', '.join(_STORED)}"
    remedy = "Read your own corpus with read_tsv or read_files."
    check(name in _STORED, "name", expected, f"{name!r}", remedy)
    file = resources.files(__package__).joinpath("corpora", f"{_STORED[name]}.tsv.gz")
    lines = gzip.decompress(file.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    return [line.split("\t") for line in lines]


@contextlib.contextmanager
def replacing(path, only_with=None, size=0):
    """Write to a temporary path next to `path`, then replace `path`, or a link there, with it."""
    # The content is on the disk before the name changes, and the new name before the block ends.
    path = Path(path)
    check_replaceable(path, only_with)
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_up(path)
    beside = path.with_name(f".{os.getpid()}.new.{path.name}")
    retired = path.with_name(f".{os.getpid()}.old.{path.name}")
    for left in (beside, retired):  # from an earlier process, or a link to another place
        _remove(left)
    try:
        if size:
            _reserve(beside, size, path)
        yield beside
        for written in (beside, *(beside.rglob("*") if beside.is_dir() else ())):
            _flush(written)
        if path.is_dir():
            # A folder cannot be replaced atomically: move the old one aside first.
            os.rename(path, retired)
        os.replace(beside, path)
        _flush(path.parent)
    except BaseException:
        if retired.exists() and not path.exists():
            os.rename(retired, path)
        raise
    finally:
        _remove(beside)
        _remove(retired)


def write_json(path, content, indent=2):
    """Replace a JSON file, as `replacing` does; without `indent`, Python writes it much faster."""
    text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
    with replacing(path) as beside:
        # Lone surrogates, as in file names that are not UTF-8, become JSON's own escapes.
        beside.write_text(text, "utf-8", "backslashreplace")


def _clear_up(path):
    """Remove what killed processes left next to `path`, or restore what they had moved aside."""
    for left in path.parent.glob(f".*.{glob.escape(path.name)}"):
        found = re.fullmatch(r"\.(\d+)\.(new|old)\.(.*)", left.name)
        if found is None or found[3] != path.name or _is_alive(int(found[1])):
            continue
        if found[2] == "old" and not path.exists():
            os.rename(left, path)
        else:
            _remove(left)


def _is_alive(process):
    if os.name != "posix":  # on Windows `os.kill` would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # another user's process, or not a process number: its files are left alone
    return True


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _reserve(beside, size, path):
    """Raise OSError unless a file of `size` bytes can be written."""
    if not hasattr(os, "posix_fallocate"):
        return
    with open(beside, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            reason = f"{error.strerror}, {size:,} bytes are needed"
            raise OSError(error.errno, reason, str(path)) from None
    beside.unlink()


def _flush(path):
    """Wait until a file or the names in a folder are on the disk."""
    if os.name != "posix":  # Windows opens no folder, and flushes no file that is only read
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_replaceable(path, only_with=None):
    """Refuse to overwrite a folder with unrelated content."""
    path = Path(path)
    if not path.is_dir():
        return
    if only_with is None:
        raise IsADirectoryError(f"{path}: expected a new or existing file, got a folder.")
    if any(path.iterdir()) and not (path / only_with).exists():
        expected = f"a new folder, or one with {only_with} to replace"
        got = "one with other content, which would be lost"
        raise ExistingFileError("path", expected, got, place=path)


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextlib.contextmanager
def locked(folder):
    """Lock the folder of a run; the lock ends with the block or the process. Not on Windows."""
    folder = Path(folder)
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with _acquired(folder) as path:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # one is not empty
                path.unlink()
                for parent in created:
                    parent.rmdir()


@contextlib.contextmanager
def _acquired(folder):
    """Yield the path of the lock file, locked."""
    path = folder / ".lock"
    if path.is_symlink():
        raise ArgumentError("path", "a file", "a symbolic link", "Delete it.", place=path)
    while True:
        with open(path, "a+", encoding="utf-8") as file:
            if not lock_file(file):
                file.seek(0)
                expected = "a folder that no other process uses"
                got = file.read() or "one that another process uses"
                remedy = "Wait until it ends, stop it, or choose another folder."
                raise ArgumentError("folder", expected, got, remedy, place=folder)
            # The previous owner may have removed the file after we opened it.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
                yield path
                return


def lock_file(file):
    """Lock an open file until it is closed; False if another process has locked it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def map_array(path):
    """Map the array of an `.npy` file, which need not be trusted, into memory."""
    import numpy as np

    # Refuses pickled objects, and arrays larger than the file, for which `np.load` would allocate.
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise
    except Exception as error:  # the header is parsed as Python, which raises many kinds
        got = f"{path}, which is damaged or another kind of file: {error}"
        raise ArgumentError("path", "an .npy file", got) from error
