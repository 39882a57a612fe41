"""The source of the sentence pairs of a training run."""

import dataclasses
from pathlib import Path

from tf_transformer.data.corpus import load_corpus
from tf_transformer.data.readers import read_files, read_tsv


@dataclasses.dataclass(frozen=True)
class PairSource:
    """An embedded corpus, pairs of files with one sentence per line, or TSV files.

    Args:
        corpus: str or None, a name that `load_corpus` knows, like "en-zh".
        source_file, target_file: None, or str or tuple of str: files that are translations of
            each other line by line, the first source file with the first target file.
        tsv: None, or str or tuple of str: files with source and target in the first two columns.

    Raises:
        ValueError: If none of the three is given, more than one, or not as many source files as
            target files.

    Example:
        >>> source = PairSource(corpus="zh-en")
        >>> source.target_language, source.name
        ('en', 'zh-en')
    """

    corpus: str | None = None
    source_file: str | tuple[str, ...] | None = None
    target_file: str | tuple[str, ...] | None = None
    tsv: str | tuple[str, ...] | None = None

    def __post_init__(self):
        for name in _FILES:
            object.__setattr__(self, name, _one_or_several(getattr(self, name)))
        if (self.source_file is None) != (self.target_file is None):
            raise ValueError(
                "source_file, target_file: expected both or neither, got "
                f"{self.source_file} and {self.target_file}."
            )
        if len(_several(self.source_file)) != len(_several(self.target_file)):
            raise ValueError(
                "source_file, target_file: expected as many target files as source files, got "
                f"{len(_several(self.source_file))} and {len(_several(self.target_file))}."
            )
        given = [x for x in (self.corpus, self.source_file, self.tsv) if x is not None]
        if len(given) != 1:
            raise ValueError(
                "data: expected one of corpus, source_file with target_file, or tsv, got "
                f"{len(given)} of them."
            )

    @property
    def name(self):
        """A short name for folders."""
        if self.corpus:
            return self.corpus
        return Path(_several(self.tsv or self.source_file)[0]).name.split(".")[0]

    @property
    def target_language(self):
        """Language code of the target side, by the corpus name or the file's suffix, or ""."""
        return self.corpus.split("-")[1] if self.corpus else _suffix(_several(self.target_file))

    def load(self):
        """Read the pairs.

        Returns:
            List of (source, target) strings.

        Raises:
            ValueError, FileNotFoundError: See `load_corpus`, `read_files` and `read_tsv`.
        """
        if self.corpus:
            return load_corpus(self.corpus)
        if self.tsv:
            return [pair for file in _several(self.tsv) for pair in read_tsv(file)]
        files = zip(_several(self.source_file), _several(self.target_file), strict=True)
        return [pair for both in files for pair in read_files(*both)]

    def with_paths(self, change):
        """The same source with other paths.

        Args:
            change: function of the path of a file, str to str.

        Returns:
            `PairSource`.

        Example:
            >>> PairSource(tsv=("a.tsv", "b.tsv")).with_paths("data/".__add__).tsv
            ('data/a.tsv', 'data/b.tsv')
        """
        changed = {name: tuple(map(change, _several(getattr(self, name)))) for name in _FILES}
        return dataclasses.replace(self, **changed)


_FILES = ("source_file", "target_file", "tsv")


def _several(files):
    return (files,) if isinstance(files, str) else files or ()


def _one_or_several(files):
    """None, a str, or a tuple of two or more: a tuple of one file becomes a str."""
    files = tuple(map(str, (files,) if isinstance(files, str | Path) else files or ()))
    return files if len(files) > 1 else next(iter(files), None)


def _suffix(files):
    suffixes = [suffix for suffix in Path(next(iter(files), "")).suffixes if suffix != ".gz"]
    return suffixes[-1][1:] if suffixes else ""
