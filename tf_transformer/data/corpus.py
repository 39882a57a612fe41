"""The parallel corpora included in the package."""

import gzip
from importlib import resources

from tf_transformer.errors import ArgumentError

_FILES = {"en-zh": "en-zh.tsv.gz", "en-fr": "en-fr.tsv.gz"}
_REVERSED = {"zh-en": "en-zh", "fr-en": "en-fr"}


def load_corpus(name):
    """Read an embedded corpus of sentence pairs from Tatoeba (CC-BY 2.0 FR).

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
    """Read the attribution of each sentence pair of an embedded corpus.

    The licence requires this text wherever the sentences are redistributed; see
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
