"""Reading lines and sentence pairs from files, plain or gzipped.

Lines end at a line feed and nowhere else: `str.splitlines` also cuts at a lone carriage
return, U+2028 or U+0085, which shifts every later line of one file against the other, silently.
"""

import gzip
import zlib
from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_files(source_file, target_file):
    """Reads two files whose lines correspond, the layout of WMT and of Multi30k.

    Args:
        source_file: string or path of a UTF-8 text file, one sentence a line; may be gzipped.
        target_file: the same for the other language.

    Returns:
        List of `(source, target)` pairs of strings, white space around them stripped.

    Raises:
        FileNotFoundError: one of the files is missing.
        ValueError: a file is empty, damaged or not UTF-8; the line counts differ; a line is blank.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> english, french = os.path.join(folder, "text.en"), os.path.join(folder, "text.fr")
        >>> for path, text in ((english, "Hi."), (french, "Salut !")):
        ...     with open(path, "w", encoding="utf-8") as file:
        ...         _ = file.write(text)
        >>> read_files(english, french)
        [('Hi.', 'Salut !')]
    """
    sources = read_lines(source_file, "source_file")
    targets = read_lines(target_file, "target_file")
    if len(sources) != len(targets):
        raise ValueError(
            f"target_file: expected as many lines as source_file, received {len(sources)} lines in "
            f"{source_file} and {len(targets)} in {target_file}; line n of one must translate "
            "line n of the other"
        )
    pairs = []
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        _check_not_blank(source, "source_file", source_file, number)
        _check_not_blank(target, "target_file", target_file, number)
        pairs.append((source.strip(), target.strip()))
    return pairs


def read_tsv(path):
    """Reads one file of lines `source<TAB>target`; further columns are ignored.

    Args:
        path: string or path of a UTF-8 text file; may be gzipped.

    Returns:
        List of `(source, target)` pairs of strings, white space around them stripped.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is empty, damaged or not UTF-8; a line has fewer than two columns, or
            a blank one among the first two.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "pairs.tsv")
        >>> with open(path, "w", encoding="utf-8") as file:
        ...     _ = file.write("Hi.\\tSalut !\\tsaid by Tom")
        >>> read_tsv(path)
        [('Hi.', 'Salut !')]
    """
    pairs = []
    for number, line in enumerate(read_lines(path, "path"), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise ValueError(
                f"path: expected at least 2 columns separated by a tab, received {len(columns)} "
                f"on line {number} of {path}; write source<TAB>target"
            )
        for side in columns[:2]:
            _check_not_blank(side, "path", path, number)
        pairs.append((columns[0].strip(), columns[1].strip()))
    return pairs


def read_lines(path, argument):
    """Reads the lines of one file.

    Args:
        path: string or path of a UTF-8 text file; may be gzipped.
        argument: string, what errors call the path.

    Returns:
        List of strings, without their line feeds.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is empty, damaged or not UTF-8.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "text")
        >>> with open(path, "w", encoding="utf-8") as file:
        ...     _ = file.write("Hi.\\nSalut !\\n")
        >>> read_lines(path, "path")
        ['Hi.', 'Salut !']
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{argument}: expected a text file, but there is no file {path}")
    content = path.read_bytes()
    # By content, not by name: a gzipped file that lost its ending is still read.
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(
                f"{argument}: expected a whole gzip file, but {path} is damaged ({error}); "
                "fetch it again"
            ) from error
    content = content.removeprefix(_BYTE_ORDER_MARK)
    if not content.strip():
        raise ValueError(
            f"{argument}: expected at least one line of text, but {path} is empty; "
            "check that it was written to the end"
        )
    lines = content.removesuffix(b"\n").split(b"\n")
    return [_decode(line, argument, path, number) for number, line in enumerate(lines, start=1)]


def check_plain_text(path, argument):
    """Refuse what is no text file before it is read line by line.

    Args:
        path: string or path.
        argument: string, what errors call the path.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is gzipped.

    Example:
        >>> check_plain_text("missing.txt", "--file")
        Traceback (most recent call last):
        FileNotFoundError: --file: expected a text file, but there is no file missing.txt
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{argument}: expected a text file, but there is no file {path}")
    with open(path, "rb") as file:
        if file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC:
            raise ValueError(
                f"{argument}: expected plain text, but {path} is gzipped; unpack it: gunzip {path}"
            )


def text_of_line(line, first=False):
    """Turns a line as it comes into text, whatever its bytes are.

    Args:
        line: bytes, with its end or without.
        first: bool, whether it begins a file: a byte order mark there is not text.

    Returns:
        String, without the end; what is not UTF-8 is U+FFFD.

    Example:
        >>> text_of_line(b"Hi.\\r\\n")
        'Hi.'
    """
    if first:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _decode(line, argument, path, number):
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{argument}: expected UTF-8, received byte 0x{line[error.start]:02x} at byte "
            f"{error.start + 1} of line {number} of {path}; convert the file to UTF-8"
        ) from error


def _check_not_blank(side, argument, path, number):
    if not side.strip():
        raise ValueError(
            f"{argument}: expected text on both sides of every pair, received a blank side on "
            f"line {number} of {path}; remove that pair"
        )
