"""The source of the documents of a pretraining run."""

import dataclasses
from pathlib import Path

from tf_transformer.data.corpus import load_corpus
from tf_transformer.data.documents import read_documents
from tf_transformer.errors import ArgumentError


@dataclasses.dataclass(frozen=True)
class TextSource:
    """One side of an embedded corpus, or text files.

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
            raise ArgumentError(
                "data",
                "either a corpus or text files",
                f"corpus {self.corpus} and {len(self.files)} files",
            )

    @property
    def name(self):
        """A short name, used for folders."""
        return self.corpus.split("-")[0] if self.corpus else Path(self.files[0]).name.split(".")[0]

    def load(self):
        """Read the documents.

        Returns:
            List of lists of strings, the sentences of each document.

        Raises:
            ValueError, FileNotFoundError: See `load_corpus` and `read_documents`.
        """
        if self.corpus:
            return [[text] for text in dict.fromkeys(side for side, _ in load_corpus(self.corpus))]
        return read_documents(self.files)

    def with_paths(self, change):
        """The same source with other paths; see `PairSource.with_paths`."""
        return dataclasses.replace(self, files=tuple(map(change, self.files)))
