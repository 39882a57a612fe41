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
    """All characters of a class.

    Args:
        name: one of `_CLASSES`.

    Returns:
        bool array `[0x110000]`, indexed by code point.

    Example:
        >>> bool(characters_of("chinese")[ord("我")])
        True
    """
    return classes() >> _CLASSES.index(name) & 1 == 1


def classes():
    """All classes as bit sets.

    Returns:
        uint16 array `[0x110000]`, indexed by code point; bit i is class i of `_CLASSES`.

    Example:
        >>> int(classes()[ord("a")]) == 2 ** _CLASSES.index("letter") + 2 ** _CLASSES.index("word")
        True
    """
    return _run_lengths("classes")


def combining_classes():
    """The canonical combining classes, which define the order of marks; 0 for other characters.

    Returns:
        uint8 array `[0x110000]`, indexed by code point.

    Example:
        >>> int(combining_classes()[0x301])  # the acute accent
        230
    """
    return _run_lengths("combining_class")


def compositions():
    """The pairs of characters that compose into a single character.

    Returns:
        int32 array `[M, 3]`: first, second, composed.

    Example:
        >>> [ord("e"), 0x301, ord("é")] in compositions().tolist()
        True
    """
    return _read_tables()["compositions"]


def mapping(name):
    """A mapping of single characters.

    Args:
        name: "nfd", "nfkd" (neither reorders marks) or "lowercase".

    Returns:
        `(codes, lengths, flat)`: the code points that change, int32 `[M]`; the number of code
        points each maps to, uint8 `[M]`; the target code points, concatenated, int32.

    Example:
        >>> codes, lengths, flat = mapping("lowercase")
        >>> chr(codes[0]), int(lengths[0]), chr(flat[0])
        ('A', 1, 'a')
    """
    return tuple(_read_tables()[f"{name}_{part}"] for part in ("from", "lengths", "to"))


@functools.cache
def _read_tables():
    with np.load(Path(__file__).with_name("unicode.npz")) as file:
        return dict(file)


def _run_lengths(name):
    starts = np.append(_read_tables()[f"{name}_starts"], NUM_CODES)
    return np.repeat(_read_tables()[f"{name}_values"], np.diff(starts))
