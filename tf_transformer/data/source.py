"""Sources of texts and pairs: files or an included corpus."""

import dataclasses
from itertools import groupby
from os import PathLike
from pathlib import Path

from tf_transformer.data.prepared_pairs import PreparedPairs
from tf_transformer.data.readers import load_corpus, read_files, read_lines, read_tsv
from tf_transformer.data.split import Split, split_pairs, split_with_validation
from tf_transformer.errors import ArgumentError


def read_documents(paths):
    """Read BERT's pretraining format: one sentence per line, a blank line between documents.

    Devlin et al. 2019, `create_pretraining_data.py`. The end of a file also ends a document.
    Returns a list of documents, each a list of stripped sentences.

    Args:
        paths: str or Path of a UTF-8 text file, or an iterable of them; each may be gzipped.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If `paths` is empty, or a file is empty, damaged or not UTF-8.

    Example:
        >>> _ = Path("text.txt").write_text("It rains.\\nTake a coat.\\n\\nCats sleep.\\n")
        >>> read_documents("text.txt")
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


@dataclasses.dataclass(frozen=True)
class TextSource:
    """One side of an included corpus, or text files.

    Args:
        corpus: str or None, a name that `load_corpus` accepts: every distinct sentence of its first
            language ("en-zh": English) is a document.
        files: strs, text files for `read_documents`.

    Raises:
        ValueError: If not exactly one of the two is given.

    Example:
        >>> source = TextSource(corpus="en-zh")
        >>> source.name, source.load()[0]
        ('en', ['Hi.'])
    """

    corpus: str | None = None
    files: tuple = ()

    def __post_init__(self):
        if isinstance(self.files, str):
            raise ArgumentError("files", "a tuple of file names", f"{self.files!r}")
        object.__setattr__(self, "files", tuple(map(str, self.files)))
        if (self.corpus is None) == (not self.files):
            got = f"corpus {self.corpus} and {len(self.files)} files"
            raise ArgumentError("data", "either a corpus or text files", got)

    @property
    def name(self):
        """A short name, used for folders."""
        return self.corpus.split("-")[0] if self.corpus else Path(self.files[0]).name.split(".")[0]

    def load(self):
        """Read the documents, lists of sentences; see `load_corpus` and `read_documents`."""
        if self.corpus:
            return [[text] for text in dict.fromkeys(side for side, _ in load_corpus(self.corpus))]
        return read_documents(self.files)

    def with_paths(self, change):
        """Return the same source with `change(path)`, str to str, for each path."""
        return dataclasses.replace(self, files=tuple(map(change, self.files)))


@dataclasses.dataclass(frozen=True)
class PairSource:
    """An included corpus, pairs of files with one sentence per line, TSV files, or prepared shards.

    Args:
        corpus: str or None, a name that `load_corpus` accepts, such as "en-zh".
        source_file, target_file: None, or str or tuple of str: files aligned line by line, the
            first source file with the first target file.
        tsv: None, or str or tuple of str: files with source and target in the first two columns.
        prepared: None, or str, a folder that `prepare_pairs` wrote.

    Raises:
        ValueError: If not exactly one of the four is given, or the numbers of source and target
            files differ.

    Example:
        >>> source = PairSource(corpus="zh-en")
        >>> source.target_language, source.name
        ('en', 'zh-en')
    """

    corpus: str | None = None
    source_file: str | tuple[str, ...] | None = None
    target_file: str | tuple[str, ...] | None = None
    tsv: str | tuple[str, ...] | None = None
    prepared: str | None = None

    def __post_init__(self):
        for name in _FILES:
            object.__setattr__(self, name, _one_or_several(getattr(self, name)))
        if (self.source_file is None) != (self.target_file is None):
            got = f"{self.source_file} and {self.target_file}"
            raise ArgumentError("source_file, target_file", "both or neither", got)
        sources, targets = len(_several(self.source_file)), len(_several(self.target_file))
        if sources != targets:
            expected, got = "as many target files as source files", f"{sources} and {targets}"
            raise ArgumentError("source_file, target_file", expected, got)
        choices = self.corpus, self.source_file, self.tsv, self.prepared
        given = sum(choice is not None for choice in choices)
        if given != 1:
            expected = "one of corpus, source_file with target_file, tsv, or prepared"
            raise ArgumentError("data", expected, f"{given} of them")

    @property
    def name(self):
        """A short name for folders."""
        if self.corpus:
            return self.corpus
        return Path(_several(self.tsv or self.source_file or self.prepared)[0]).name.split(".")[0]

    @property
    def target_language(self):
        """Language code of the target side, from the corpus name or the file's suffix, or ""."""
        if self.prepared:
            return PairSource(**PreparedPairs(self.prepared).manifest["source"]).target_language
        return self.corpus.split("-")[1] if self.corpus else _suffix(_several(self.target_file))

    @property
    def files(self):
        """The files: a list of tuples, each a TSV file or two aligned files."""
        if self.tsv:
            return [(file,) for file in _several(self.tsv)]
        return list(zip(_several(self.source_file), _several(self.target_file), strict=True))

    def load(self):
        """Read the pairs, a list of (source, target) strings; for shards, a `PreparedPairs`.

        Raises:
            ValueError, FileNotFoundError: See `load_corpus`, `read_tsv` and `PreparedPairs`.
        """
        if self.prepared:
            return PreparedPairs(self.prepared)
        if self.corpus:
            return load_corpus(self.corpus)
        read = read_tsv if self.tsv else read_files
        return [pair for together in self.files for pair in read(*together)]

    def split(self, validation=None):
        """Return a `Split`; for prepared shards, its `train` is a `PreparedPairs`.

        Args:
            validation: None, for a part of the data; or `PairSource`, a validation set.

        Raises:
            ValueError: If a validation set is given for prepared shards; see also `load`.
        """
        pairs = self.load()
        if not self.prepared:
            if validation is None:
                return split_pairs(pairs)
            return split_with_validation(pairs, validation.load())
        if validation is not None:
            raise ArgumentError("validation", "none with prepared pairs, which have their own")
        return Split(pairs, pairs.held_out("validation"), pairs.held_out("test"))

    def with_paths(self, change):
        """Return the same source with `change(path)`, str to str, for each path."""
        changed = {name: tuple(map(change, _several(getattr(self, name)))) for name in _FILES}
        return dataclasses.replace(self, **changed)


_FILES = ("source_file", "target_file", "tsv", "prepared")


def _several(files):
    return (files,) if isinstance(files, str) else files or ()


def _one_or_several(files):
    """Return None, a str, or a tuple of two or more."""
    files = tuple(map(str, (files,) if isinstance(files, str | Path) else files or ()))
    return files if len(files) > 1 else next(iter(files), None)


def _suffix(files):
    suffixes = [suffix for suffix in Path(next(iter(files), "")).suffixes if suffix != ".gz"]
    return suffixes[-1][1:] if suffixes else ""
