"""Character properties used by the Rust package `tokenizers`, as tables.

The tables are extracted from that package (tests/support/make_unicode_tables.py) because other
engines use other versions of Unicode.
"""

import functools
from pathlib import Path

import numpy as np

NUM_CODES = 0x110000

_CLASSES = (
    "bert_removed",  # control characters and U+FFFD, which BERT's clean-up drops
    "bert_space",  # characters it turns into a space
    "white_space",  # the property White_Space
    "bert_punctuation",  # category P and all ASCII symbols
    "chinese",  # CJK ideographs, which BERT surrounds with spaces
    "nonspacing_mark",  # category Mn, which BERT drops as accents
    "combining_mark",  # category M, which StripAccents drops
    "letter",  # \p{L}
    "number",  # \p{N}
    "regex_space",  # \s
    "nmt_removed",  # control characters that the normalizer Nmt drops
    "nmt_space",  # characters it turns into a space
    "word",  # \w
    "numeric",  # characters that Digits splits off
)


def characters_of(name):
    """All characters of a class."""
    return classes() >> _CLASSES.index(name) & 1 == 1


def classes():
    """All classes as bit sets."""
    return _run_lengths("classes")


def combining_classes():
    """The canonical combining classes, which define the order of marks; 0 for other characters."""
    return _run_lengths("combining_class")


def compositions():
    """The pairs of characters that compose into a single character."""
    return _read_tables()["compositions"]


def mapping(name):
    """A mapping of single characters."""
    return tuple(_read_tables()[f"{name}_{part}"] for part in ("from", "lengths", "to"))


@functools.cache
def _read_tables():
    with np.load(Path(__file__).with_name("unicode.npz")) as file:
        return dict(file)


def _run_lengths(name):
    starts = np.append(_read_tables()[f"{name}_starts"], NUM_CODES)
    return np.repeat(_read_tables()[f"{name}_values"], np.diff(starts))
