"""The source of the sentence pairs of a training run."""

import dataclasses
from pathlib import Path

from tf_transformer.data.corpus import load_corpus
from tf_transformer.data.readers import read_files, read_tsv


@dataclasses.dataclass(frozen=True)
class PairSource:
    """An embedded corpus, two files with a sentence a line, or one TSV file.

    Args:
        corpus: str or None, a name that `load_corpus` knows, like "en-zh".
        source_file, target_file: str or None, two files, line by line translations.
        tsv: str or None, a file with source and target in its first two columns.

    Raises:
        ValueError: none of the three was given, or more than one.

    Example:
        >>> source = PairSource(corpus="zh-en")
        >>> source.target_language, source.name
        ('en', 'zh-en')
    """

    corpus: str | None = None
    source_file: str | None = None
    target_file: str | None = None
    tsv: str | None = None

    def __post_init__(self):
        if (self.source_file is None) != (self.target_file is None):
            raise ValueError(
                "source_file, target_file: expected both or neither, got "
                f"{self.source_file} and {self.target_file}."
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
        return Path(self.tsv or self.source_file).name.split(".")[0]

    @property
    def target_language(self):
        """Language code of the target side, by the corpus name or the file's suffix, or ""."""
        return self.corpus.split("-")[1] if self.corpus else _suffix(self.target_file)

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
            return read_tsv(self.tsv)
        return read_files(self.source_file, self.target_file)


def _suffix(file):
    suffixes = [suffix for suffix in Path(file or "").suffixes if suffix != ".gz"]
    return suffixes[-1][1:] if suffixes else ""
