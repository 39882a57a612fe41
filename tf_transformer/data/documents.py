"""Reading documents from files, plain or gzipped."""

from itertools import groupby
from os import PathLike

from tf_transformer.data.readers import read_lines
from tf_transformer.errors import ArgumentError


def read_documents(paths):
    """Read BERT's pretraining format: one sentence per line, a blank line between documents.

    Devlin et al. 2019, in the authors' `create_pretraining_data.py`. The end of a file also ends a
    document.

    Args:
        paths: string or path of a UTF-8 text file, or an iterable of them; each may be gzipped.

    Returns:
        List of documents, each a list of stripped sentences.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If `paths` is empty, or a file is empty, damaged or not UTF-8.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "text.txt")
        >>> with open(path, "w", encoding="utf-8") as file:
        ...     _ = file.write("It rains.\\nTake a coat.\\n\\nCats sleep.\\n")
        >>> read_documents(path)
        [['It rains.', 'Take a coat.'], ['Cats sleep.']]
    """
    paths = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not paths:
        raise ArgumentError("paths", "at least one text file", "none")
    documents = []
    for path in paths:
        lines = [line.strip() for line in read_lines(path, "paths")]
        documents += [list(group) for has_text, group in groupby(lines, key=bool) if has_text]
    return documents
