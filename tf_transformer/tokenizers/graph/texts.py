"""Ragged pieces of texts, and steps that follow each other."""

import re

import tensorflow as tf

from tf_transformer.tokenizers.pipeline import SHARED_PATTERNS
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
