"""Code points to code points, in a graph. C code points."""

import functools
import itertools

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.character_table import CharacterTable
from tf_transformer.tokenizers.graph.characters import NUM_CODES, mapping


class CharacterMap:
    """Code points to code points, each by itself: none, one or several for one.

    Args:
        lengths: integer array `[0x110000]`, how many each becomes, at most 31.
        first: integer array `[0x110000]`, what those become that become one.
        several: dict of code point -> tuple, for those that become more than one.

    Example:
        >>> is_comma = np.arange(NUM_CODES) == ord(",")
        >>> spaced = CharacterMap.surrounding(is_comma, ord(" "))
        >>> codes, rows = spaced(tf.constant([0x2C, 0x42]), tf.constant([0, 1]))
        >>> codes.numpy().tolist(), rows.numpy().tolist()
        ([32, 44, 32, 66], [0, 0, 0, 1])
    """

    def __init__(self, lengths, first, several):
        self._lengths, self._first, self._several = lengths, first, several

    @functools.cached_property
    def _tables(self):
        # What is added to a code point that stays one, or where its sequence begins in `flat`.
        places = np.where(self._lengths == 1, self._first - np.arange(NUM_CODES), 0)
        sizes = np.array([len(to) for to in self._several.values()], np.int64)
        places[list(self._several)] = np.cumsum(sizes) - sizes
        flat = np.array([*itertools.chain(*self._several.values()), 0], np.int32)
        return CharacterTable(places << 5 | self._lengths), flat

    @classmethod
    def named(cls, name):
        """The map "nfd", "nfkd" or "lowercase"; the first two without the order of marks."""
        codes, sizes, flat = mapping(name)
        starts = np.cumsum(sizes, dtype=np.int64) - sizes
        lengths, first = np.ones(NUM_CODES, np.int32), np.arange(NUM_CODES)
        lengths[codes], first[codes] = sizes, flat[starts]
        several = {
            int(codes[i]): tuple(flat[starts[i] : starts[i] + sizes[i]].tolist())
            for i in np.flatnonzero(sizes > 1)
        }
        return cls(lengths, first, several)

    @classmethod
    def replacing(cls, is_replaced, code=None):
        """Each character of a class (bool `[0x110000]`) becomes `code`, or nothing."""
        if code is None:
            return cls(np.where(is_replaced, 0, 1), np.arange(NUM_CODES), {})
        return cls(np.ones(NUM_CODES, int), np.where(is_replaced, code, np.arange(NUM_CODES)), {})

    @classmethod
    def surrounding(cls, is_surrounded, code):
        """Puts `code` before and after each character of a class (bool `[0x110000]`)."""
        several = {int(c): (code, int(c), code) for c in np.flatnonzero(is_surrounded)}
        return cls(np.where(is_surrounded, 3, 1), np.arange(NUM_CODES), several)

    def then(self, other):
        """This map and then `other`, in one step."""
        is_one = self._lengths == 1
        lengths = np.where(is_one, other._lengths[self._first], 0)
        several = {
            int(code): other._several[self._first[code]] for code in np.flatnonzero(lengths > 1)
        }
        first = np.where(is_one, other._first[self._first], self._first)
        for code, to in self._several.items():
            to = tuple(c for part in to for c in other._of(part))
            lengths[code] = len(to)
            if len(to) > 1:
                several[code] = to
            elif to:
                [first[code]] = to
        return CharacterMap(lengths, first, several)

    def _of(self, code):
        if code in self._several:
            return self._several[code]
        return (int(self._first[code]),) if self._lengths[code] else ()

    def __call__(self, codes, rows):
        """int32 `[N]`, int `[N]` (the text of each) -> the same of the new length."""
        table, flat = self._tables
        packed = table.look_up(codes)
        lengths = tf.bitwise.bitwise_and(packed, 31)
        places = tf.bitwise.right_shift(packed, 5)
        return tf.cond(
            tf.reduce_all(lengths == 1),
            lambda: (codes + places, rows),
            lambda: _expand(codes, rows, lengths, places, flat),
        )


def _expand(codes, rows, lengths, places, flat):
    source = tf.repeat(tf.range(tf.size(codes)), lengths)  # [M]
    within = tf.range(tf.size(source)) - tf.gather(tf.cumsum(lengths, exclusive=True), source)
    places, is_one = tf.gather(places, source), tf.gather(lengths == 1, source)
    several = tf.gather(flat, tf.where(is_one, 0, places + within))
    return tf.where(is_one, tf.gather(codes, source) + places, several), tf.gather(rows, source)
