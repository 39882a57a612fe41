"""Readers of pair files and of the included corpora."""

import contextlib
import gzip
import os
import zlib
from importlib import resources
from pathlib import Path

from tf_transformer.errors import ArgumentError, MissingFileError

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_files(source_file, target_file):
    """Read two line-aligned files, the layout of WMT and Multi30k.

    Args:
        source_file: string or path of a UTF-8 text file, one sentence per line; may be gzipped.
        target_file: the same for the other language.

    Returns:
        List of `(source, target)` pairs of stripped strings.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is empty, damaged or not UTF-8, the line counts differ, or a line is
            blank.

    Example:
        >>> _ = Path("text.en").write_text("Hi."), Path("text.fr").write_text("Salut !")
        >>> read_files("text.en", "text.fr")
        [('Hi.', 'Salut !')]
    """
    sources = read_lines(source_file, "source_file")
    targets = read_lines(target_file, "target_file")
    if len(sources) != len(targets):
        raise ArgumentError(
            "target_file",
            "as many lines as source_file",
            f"{len(sources)} lines in {source_file} and {len(targets)} in {target_file}",
            "Line n of one must translate line n of the other.",
        )
    return [
        (
            text_of(source, "source_file", source_file, number),
            text_of(target, "target_file", target_file, number),
        )
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1)
    ]


def read_tsv(path, argument="path"):
    """Read a file of lines `source<TAB>target`; further columns are ignored.

    Args:
        path: string or path of a UTF-8 text file; may be gzipped.
        argument: str, the name to use in errors.

    Returns:
        List of `(source, target)` pairs of stripped strings.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is empty, damaged or not UTF-8, or a line has fewer than two
            columns or a blank one among the first two.

    Example:
        >>> _ = Path("pairs.tsv").write_text("Hi.\\tSalut !\\tsaid by Tom")
        >>> read_tsv("pairs.tsv")
        [('Hi.', 'Salut !')]
    """
    return [
        pair_of_columns(line, argument, path, number)
        for number, line in enumerate(read_lines(path, argument), start=1)
    ]


def pair_of_columns(line, argument, path, number):
    """Read one line of a TSV file."""
    columns = line.split("\t")
    if len(columns) < 2:
        raise ArgumentError(
            argument,
            "at least 2 columns separated by a tab",
            f"{len(columns)} on line {number} of {path}",
            "Write source<TAB>target.",
        )
    source, target = (text_of(side, argument, path, number) for side in columns[:2])
    return source, target


def read_lines(path, argument):
    """Read the lines of one file."""
    path = Path(path)
    check_exists(path, argument)
    content = path.read_bytes()
    # By content, not by name: a gzipped file without the suffix is still read.
    if content.startswith(GZIP_MAGIC):
        with complete_gzip(path, argument):
            content = gzip.decompress(content)
    content = content.removeprefix(BYTE_ORDER_MARK)
    if not content.strip():
        raise ArgumentError(
            argument,
            "at least one line of text",
            f"{path}, which is empty",
            "Check that it was written completely.",
        )
    lines = content.removesuffix(b"\n").split(b"\n")
    return [decoded(line, argument, path, number) for number, line in enumerate(lines, start=1)]


def check_plain_text(path, argument):
    """Reject files that are not plain text before reading them line by line."""
    check_exists(path, argument)
    with open(path, "rb") as file:
        if file.read(len(GZIP_MAGIC)) == GZIP_MAGIC:
            raise ArgumentError(
                argument, "plain text", f"{path}, which is gzipped", f"Unpack it: gunzip {path}"
            )


def text_of_line(line, first=False):
    """Decode a raw line, replacing invalid bytes."""
    if first:
        line = line.removeprefix(BYTE_ORDER_MARK)
    return line.decode("utf-8", "replace").rstrip("\r\n")


@contextlib.contextmanager
def complete_gzip(path, argument):
    """Name the file in the error if its gzip stream is damaged."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise ArgumentError(
            argument,
            "a complete gzip file",
            f"{path}, which is damaged ({error})",
            "Download it again.",
        ) from error


def check_exists(path, argument):
    """Raise an error if a file does not exist."""
    if not os.path.isfile(path):  # `is_file` raises an error for a name that is too long
        raise MissingFileError(argument, "a text file", f"no file {path}")


def decoded(line, argument, path, number):
    """Decode a line of a file that must be UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(
            argument,
            "UTF-8",
            f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of line {number} of {path}",
            "Convert the file to UTF-8.",
        ) from error


def text_of(side, argument, path, number):
    """Strip a side of a pair, which must not be blank."""
    text = side.strip()
    if not text:
        raise ArgumentError(
            argument,
            "text on both sides of every pair",
            f"a blank side on line {number} of {path}",
            "Remove that pair.",
        )
    return text


def one_line(text):
    """Replace the tabs and line breaks of a translation with spaces."""
    return " ".join(text.replace("\t", " ").splitlines())


_FILES = {"en-zh": "en-zh.tsv.gz", "en-fr": "en-fr.tsv.gz"}
_REVERSED = {"zh-en": "en-zh", "fr-en": "en-fr"}


def load_corpus(name):
    """Read an included corpus of sentence pairs from Tatoeba (CC-BY 2.0 FR).

    Many sentences appear in several pairs with different translations: split the pairs with
    `split_pairs` to keep test sentences out of training.

    Args:
        name: "en-zh" (29,155 pairs), "en-fr" (25,000 short pairs), or "zh-en" or "fr-en", the same
            pairs in the other direction.

    Returns:
        List of `(source, target)` pairs of strings.

    Raises:
        ValueError: If there is no corpus of that name.

    Example:
        >>> load_corpus("en-zh")[0]
        ('Hi.', '嗨。')
    """
    rows = _read_rows(name)
    if name in _REVERSED:
        return [(other, english) for english, other, _ in rows]
    return [(english, other) for english, other, _ in rows]


def load_attributions(name):
    """Read the attribution of each sentence pair of an included corpus.

    The license requires this text wherever the sentences are redistributed; see
    `corpora/README.md`.

    Args:
        name: a name that `load_corpus` accepts.

    Returns:
        List of strings, one for each pair of `load_corpus(name)`, in the same order. The English
        sentence is named first, regardless of the direction.

    Raises:
        ValueError: If there is no corpus of that name.

    Example:
        >>> load_attributions("en-zh")[0]
        'CC-BY 2.0 (France) Attribution: tatoeba.org #538123 (CM) & #891077 (Martha)'
    """
    return [attribution for _, _, attribution in _read_rows(name)]


def _read_rows(name):
    stored = _REVERSED.get(name, name)
    if stored not in _FILES:
        names = ", ".join(sorted([*_FILES, *_REVERSED]))
        raise ArgumentError(
            "name",
            f"one of {names}",
            f"{name!r}",
            "Read your own corpus with read_tsv or read_files.",
        )
    packed = resources.files(__package__).joinpath("corpora", _FILES[stored]).read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").rstrip("\n").split("\n")
    return [line.split("\t") for line in lines]
