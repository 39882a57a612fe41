"""Texts in a graph, as strings or code points, and the properties of characters."""

import functools
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.pipeline import SHARED_PATTERNS, byte_alphabet
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart


class Texts:
    """Texts as strings or as code points, converted on demand.

    A pipeline whose steps all use code points thus decodes once and encodes once.
    """

    def __init__(self, size, strings=None, codes=None, rows=None, is_valid=True):
        self.size, self._strings, self._codes, self._rows = size, strings, codes, rows
        self._is_valid = is_valid

    @classmethod
    def of(cls, strings, is_valid=False):
        """Texts from strings; invalid bytes become U+FFFD."""
        return cls(tf.size(strings, tf.int64), strings, is_valid=is_valid)

    def with_strings(self, strings):
        """The same number of texts, from valid UTF-8 strings."""
        return Texts(self.size, strings)

    def with_codes(self, codes, rows):
        """The same number of texts, from code points and the text of each."""
        return Texts(self.size, codes=codes, rows=rows)

    @property
    def codes(self):
        """int32 `[C]` code points, int64 `[C]` the text of each."""
        if self._codes is not None:
            return self._codes, self._rows
        codes = tf.strings.unicode_decode(self._strings, "UTF-8", errors="replace")
        return codes.values, codes.value_rowids()

    @property
    def strings(self):
        """string `[N]` of valid UTF-8."""
        if self._strings is not None:
            return self._strings if self._is_valid else repair_utf8(self._strings)
        texts = tf.RaggedTensor.from_value_rowids(
            self._codes, self._rows, self.size, validate=False
        )
        return tf.strings.unicode_encode(texts, "UTF-8")


def repair_utf8(strings):
    r"""Replace invalid bytes with U+FFFD, like Python's `decode("utf-8", errors="replace")`."""
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")


def starts_where(differs, codes):
    """Mark the first character and each that `differs` (bool `[C - 1]`) from the previous one."""
    return tf.concat([[True], differs], axis=0)[: tf.size(codes)]  # [C]


def words_at(codes, rows, is_new, num_rows):
    """Group code points into words."""
    starts = tf.where(is_new)[:, 0]
    splits = tf.concat([starts, [tf.size(codes, tf.int64)]], axis=0)
    words = tf.RaggedTensor.from_row_splits(codes, splits, validate=False)
    return tf.RaggedTensor.from_value_rowids(
        tf.strings.unicode_encode(words, "UTF-8"),
        tf.gather(rows, starts),
        num_rows,
        validate=False,
    )


def literal(text):
    r"""The RE2 regular expression that matches a text literally."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def shared_pattern(part, name):
    r"""The RE2 regular expression of a part's "pattern", known to match as in the Rust package."""
    [(kind, pattern)] = part["pattern"].items()
    if kind == "String" and pattern:
        return literal(pattern)
    if pattern not in SHARED_PATTERNS:
        raise UnsupportedPart.of(f"{name}.pattern", [*SHARED_PATTERNS, "any String"], pattern)
    return pattern


def replaced(strings, pattern, content):
    r"""Replace all matches of a regular expression with a literal text (no group references).

    On an invalid reference TensorFlow would only log an error and replace nothing.
    """
    return tf.strings.regex_replace(strings, pattern, content.replace("\\", "\\\\"))


def words_of_characters(words):
    """Split words into characters."""
    codes = tf.strings.unicode_decode(words, "UTF-8")
    places = codes.value_rowids(), codes.row_starts(), codes.row_limits()
    return codes.values, *(tf.cast(part, tf.int32) for part in places)


BYTE_OF_LETTER = {letter: byte for byte, letter in enumerate(byte_alphabet())}


def bytes_of_letters(text):
    """Return the bytes that a token of a byte-level vocabulary stands for."""
    if not BYTE_OF_LETTER.keys() >= set(text):
        return None
    return bytes(map(BYTE_OF_LETTER.get, text))


def bytes_of_words(words):
    """Split words into bytes. N bytes of all words."""
    values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)  # [N]
    owner = tf.repeat(tf.range(tf.size(words)), tf.strings.length(words))
    return tf.cast(values, tf.int32), owner


def follow(start, goal, jump_at):
    """Jump from position to position in every word until its goal."""
    start, goal = tf.convert_to_tensor(start), tf.convert_to_tensor(goal)

    def step(words, places, is_visited, arrives):
        jumps = tf.gather(jump_at, places)
        goes_on = jumps != 0
        words, places = tf.boolean_mask(words, goes_on), tf.boolean_mask(places, goes_on)
        is_visited = _mark(is_visited, places)
        places += tf.boolean_mask(jumps, goes_on)
        is_there = places == tf.gather(goal, words)
        arrives = _mark(arrives, tf.boolean_mask(words, is_there))
        return (
            tf.boolean_mask(words, ~is_there),
            tf.boolean_mask(places, ~is_there),
            is_visited,
            arrives,
        )

    state = (
        tf.range(tf.size(start)),
        start,
        tf.zeros_like(jump_at, tf.bool),
        tf.zeros_like(start, tf.bool),
    )
    *_, is_visited, arrives = tf.while_loop(
        lambda words, *_: tf.size(words) > 0,
        step,
        state,
        shape_invariants=(tf.TensorShape([None]),) * 4,
    )
    return is_visited, arrives


def _mark(flags, places):
    return tf.tensor_scatter_nd_update(
        flags, places[:, tf.newaxis], tf.fill(tf.shape(places), True)
    )


_PAGE = 256


class CharacterTable:
    """One number for each code point, stored in pages; identical pages are stored once."""

    def __init__(self, values):
        numbers = {}  # of distinct pages
        starts = []
        for page in np.asarray(values, np.int32).reshape(-1, _PAGE):
            starts.append(numbers.setdefault(page.tobytes(), len(numbers)) * _PAGE)
        self._values = np.frombuffer(b"".join(numbers), np.int32)
        self._start_of_page = np.array(starts, np.int32)

    def look_up(self, codes):
        """int32 `[C]` -> int32 `[C]`."""
        start = tf.gather(self._start_of_page, tf.bitwise.right_shift(codes, 8))
        return tf.gather(self._values, start + tf.bitwise.bitwise_and(codes, _PAGE - 1))


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


_REMOVED = -1


class Composition:
    """Combines a letter with the marks that follow it if a composed character exists.

    Unicode Standard Annex 15, section 1.3. The standard processes a text character by character.
    Here a text is split before every character that can never combine with the preceding one, and
    the resulting spans, mostly a letter with its marks, are processed in parallel.
    """

    def __init__(self):
        first, second, composed = compositions().T.astype(np.int64)
        pairs = first * NUM_CODES + second
        order = np.argsort(pairs)
        self._pairs, self._composed = pairs[order], composed[order].astype(np.int32)
        self._classes = CharacterTable(combining_classes())
        self._is_second = CharacterTable(np.isin(np.arange(NUM_CODES), second))

    def __call__(self, codes, rows):
        """int32 `[C]` decomposed and in canonical order, int64 `[C]` -> the same, composed."""
        is_second = tf.cast(self._is_second.look_up(codes), tf.bool)
        return tf.cond(
            tf.reduce_any(is_second),
            lambda: self._compose(codes, rows, is_second),
            lambda: (codes, rows),
        )

    def _compose(self, codes, rows, is_second):
        classes = self._classes.look_up(codes)
        is_new_row = starts_where(rows[1:] != rows[:-1], codes)
        place = tf.cast(tf.where(is_new_row | ((classes == 0) & ~is_second))[:, 0], tf.int32)
        end = tf.concat([place[1:], [tf.size(codes)]], axis=0)
        none = tf.fill(tf.shape(place), -1)
        state = (codes, place, end, none, none, none)
        shapes = [tf.TensorShape([None])] * len(state)
        codes, *_ = tf.while_loop(
            lambda codes, place, *_: tf.size(place) > 0,
            lambda *state: self._take_next(classes, *state),
            state,
            shape_invariants=tuple(shapes),
        )
        is_kept = codes != _REMOVED
        return tf.boolean_mask(codes, is_kept), tf.boolean_mask(rows, is_kept)

    def _take_next(self, classes, codes, place, end, starter, starter_code, last):
        """Process one character of each span."""
        code, its_class = tf.gather(codes, place), tf.gather(classes, place)
        pair = tf.cast(starter_code, tf.int64) * NUM_CODES + tf.cast(code, tf.int64)
        found = tf.minimum(tf.searchsorted(self._pairs, pair), len(self._pairs) - 1)
        # A mark is blocked if a mark of the same or a higher class was kept before it.
        joins = (tf.gather(self._pairs, found) == pair) & (its_class > last)
        composed = tf.gather(self._composed, found)
        codes = tf.tensor_scatter_nd_update(
            codes,
            tf.concat([starter[joins], place[joins]], axis=0)[:, tf.newaxis],
            tf.concat([composed[joins], tf.fill(tf.shape(place[joins]), _REMOVED)], axis=0),
        )
        is_starter = ~joins & (its_class == 0)
        starter = tf.where(is_starter, place, starter)
        starter_code = tf.where(joins, composed, tf.where(is_starter, code, starter_code))
        last = tf.where(joins, last, tf.where(is_starter, -1, its_class))
        place += 1
        open_spans = place < end
        state = (place, end, starter, starter_code, last)
        return codes, *(tf.boolean_mask(part, open_spans) for part in state)


_CODES = np.arange(NUM_CODES, dtype=np.int32)


class CharacterMap:
    """Maps each code point independently to zero, one or several code points."""

    def __init__(self, lengths, becomes):
        self._lengths, self._becomes = lengths, becomes

    @functools.cached_property
    def _tables(self):
        # The offset added to a code point that maps to one, or where its sequence begins in
        # `several`.
        is_one, is_several = self._lengths == 1, self._lengths > 1
        places = _starts(np.where(is_several, self._lengths, 0))
        places[is_one] = self._becomes[np.repeat(is_one, self._lengths)] - np.flatnonzero(is_one)
        several = self._becomes[np.repeat(is_several, self._lengths)]
        return CharacterTable(places << 5 | self._lengths), np.append(several, np.int32(0))

    @classmethod
    def named(cls, name):
        """The map "nfd", "nfkd" or "lowercase"; the first two do not reorder marks."""
        codes, sizes, flat = mapping(name)
        lengths = np.ones(NUM_CODES, np.int32)
        lengths[codes] = sizes
        becomes = np.repeat(_CODES, lengths)
        becomes[_ranges(_starts(lengths)[codes], sizes)] = flat
        return cls(lengths, becomes)

    @classmethod
    def replacing(cls, is_replaced, code=None):
        """Replace each character of a class (bool `[0x110000]`) with `code`, or remove it."""
        if code is None:
            return cls(np.where(is_replaced, 0, 1), _CODES[~is_replaced])
        return cls(np.ones_like(_CODES), np.where(is_replaced, np.int32(code), _CODES))

    @classmethod
    def surrounding(cls, is_surrounded, code):
        """Insert `code` before and after each character of a class (bool `[0x110000]`)."""
        lengths = np.where(is_surrounded, 3, 1)
        becomes = np.repeat(_CODES, lengths)
        first = _starts(lengths)[is_surrounded]
        becomes[first] = becomes[first + 2] = code
        return cls(lengths, becomes)

    def then(self, other):
        """Compose this map with `other`, which is applied second."""
        sizes = other._lengths[self._becomes]
        becomes = other._becomes[_ranges(_starts(other._lengths)[self._becomes], sizes)]
        ends = np.cumsum(self._lengths)
        sums = np.append(0, np.cumsum(sizes))
        return CharacterMap(sums[ends] - sums[ends - self._lengths], becomes)

    def __call__(self, codes, rows):
        """int32 `[N]` codes, int `[N]` text of each -> the same with the new length."""
        table, several = self._tables
        packed = table.look_up(codes)
        lengths = tf.bitwise.bitwise_and(packed, 31)
        places = tf.bitwise.right_shift(packed, 5)
        return tf.cond(
            tf.reduce_all(lengths == 1),
            lambda: (codes + places, rows),
            lambda: _expand(codes, rows, lengths, places, several),
        )


def _expand(codes, rows, lengths, places, several):
    source = tf.repeat(tf.range(tf.size(codes)), lengths)  # [M]
    within = tf.range(tf.size(source)) - tf.gather(tf.cumsum(lengths, exclusive=True), source)
    places, is_one = tf.gather(places, source), tf.gather(lengths == 1, source)
    codes = tf.where(
        is_one,
        tf.gather(codes, source) + places,
        tf.gather(several, tf.where(is_one, 0, places + within)),
    )
    return codes, tf.gather(rows, source)


def _starts(lengths):
    """Start of each of several adjacent pieces: integer `[N]` -> the same."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _ranges(starts, lengths):
    """The positions in all pieces, concatenated: integers `[N]`, `[N]` -> `[sum(lengths)]`."""
    before = np.repeat(starts - _starts(lengths), lengths)
    return before + np.arange(len(before))
