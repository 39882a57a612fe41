"""Mapping code points to code points in a graph. C code points."""

import functools

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.character_table import CharacterTable
from tf_transformer.tokenizers.graph.characters import NUM_CODES, mapping

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
