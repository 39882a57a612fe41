"""The normalizers of a `tokenizer.json` as functions of `Texts`. C code points."""

import functools
import json

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.precompiled import Precompiled, SentencePieceNormalizer
from tf_transformer.tokenizers.graph.texts import (
    NUM_CODES,
    CharacterTable,
    characters_of,
    function_for,
    property_of_all,
    replaced,
    rows_of,
    selected,
    shared_pattern,
    starts_where,
    unicode_tables,
    until_empty,
)

_SPACE = ord(" ")
_CODES = np.arange(NUM_CODES, dtype=np.int32)


class Normalizer(tf.Module):
    """What a "normalizer" describes, as a function of `Texts`."""

    def __init__(self, part):
        super().__init__(name="normalizer")
        self._steps = _fused_steps(json.dumps(part))
        # A SavedModel keeps the tables of these.
        self.modules = [step for step in self._steps if isinstance(step, tf.Module)]

    def __call__(self, texts):
        """Normalize `Texts`."""
        for step in self._steps:
            texts = step(texts)
        return texts


# Adjacent maps of characters become one map. This takes longer than all else in reading a small
# tokenizer, and the maps never change.
@functools.lru_cache(maxsize=8)
def _fused_steps(part):
    steps = []
    for step in _steps(json.loads(part)):
        if steps and isinstance(step, CharacterMap) and isinstance(steps[-1], CharacterMap):
            step = steps.pop().then(step)
        steps.append(step)
    return tuple(steps)


def _steps(part):
    return [] if part is None else function_for("normalizer", part, _MAKERS)(part)


def _sequence(part):
    return [step for inner in part["normalizers"] for step in _steps(inner)]


def _bert(part):
    steps = []
    if part["clean_text"]:
        steps += [_replacing("bert_removed"), _replacing("bert_space", _SPACE)]
    if part["handle_chinese_chars"]:
        steps.append(CharacterMap.surrounding(characters_of("chinese"), _SPACE))
    strip_accents = part["strip_accents"]
    if part["lowercase"] if strip_accents is None else strip_accents:
        steps += [*_decomposed("nfd"), _replacing("nonspacing_mark")]
    if part["lowercase"]:
        steps.append(CharacterMap.named("lowercase"))
    return steps


def _decomposed(name):
    return [CharacterMap.named(name), _put_in_order]


def _replacing(name, code=None):
    return CharacterMap.replacing(characters_of(name), code)


def _on_strings(function):
    return [lambda texts: texts.with_strings(function(texts.strings))]


def _strip(part):
    spaces = "".join(rf"\x{{{code:x}}}" for code in np.flatnonzero(characters_of("white_space")))
    ends = [f"^[{spaces}]+"] * part["strip_left"] + [f"[{spaces}]+$"] * part["strip_right"]
    return _on_strings(lambda strings: replaced(strings, "|".join(ends), "")) if ends else []


def _replace(part):
    pattern = shared_pattern(part, "normalizer")
    return _on_strings(lambda strings: replaced(strings, pattern, part["content"]))


def _prepend(part):
    return _on_strings(lambda strings: tf.where(strings == "", "", part["prepend"] + strings))


_MAKERS = {
    "BertNormalizer": _bert,
    "Lowercase": lambda _: [CharacterMap.named("lowercase")],
    "NFC": lambda _: [*_decomposed("nfd"), Composition()],
    "NFD": lambda _: _decomposed("nfd"),
    "NFKC": lambda _: [*_decomposed("nfkd"), Composition()],
    "NFKD": lambda _: _decomposed("nfkd"),
    "Nmt": lambda _: [_replacing("nmt_removed"), _replacing("nmt_space", _SPACE)],
    "Precompiled": lambda part: [Precompiled(part)],
    "Prepend": _prepend,
    "Replace": _replace,
    "SentencePiece": lambda part: [SentencePieceNormalizer(part)],
    "Sequence": _sequence,
    "Strip": _strip,
    "StripAccents": lambda _: [_replacing("combining_mark")],
}


_REMOVED = -1


def _put_in_order(texts):
    """Unicode's canonical ordering: sorts adjacent marks by their combining class."""
    codes, rows = texts.codes
    classes = _combining_classes().look_up(codes)
    same_row = rows[1:] == rows[:-1]
    is_out_of_order = (classes[1:] > 0) & (classes[1:] < classes[:-1]) & same_row

    def put_in_order():
        # A run is a character and the marks after it; only the marks change order.
        run = tf.cumsum(tf.cast(starts_where((classes[1:] == 0) | ~same_row, codes), tf.int64))
        keys = run * 256 + tf.cast(classes, tf.int64)
        return tf.argsort(keys, stable=True)

    order = tf.range(tf.size(codes))
    order = tf.cond(tf.reduce_any(is_out_of_order), put_in_order, lambda: order)
    places = None
    if texts.source is not None:
        # As in the Rust package, the first of the sorted marks is where the first was before; those
        # that one character decomposes to, which the package calls added, share its place.
        is_first = starts_where((texts.source[1:] != texts.source[:-1]) | ~same_row, codes)
        number = tf.cumsum(tf.cast(tf.gather(is_first, order), tf.int32)) - 1
        places = tf.gather(tf.where(is_first)[:, 0], number)
    return texts.with_codes(tf.gather(codes, order), rows, places)


@functools.cache
def _combining_classes():
    return CharacterTable(property_of_all("combining_class"))


class Composition:
    """Combines a letter with the marks that follow it if a composed character exists."""

    # Unicode Standard Annex 15, section 1.3. The standard processes a text character by character.
    # Here a text is split before every character that can never combine with the preceding one,
    # and the resulting spans, mostly a letter with its marks, are processed in parallel.

    def __init__(self):
        first, second, composed = unicode_tables()["compositions"].T.astype(np.int64)
        pairs = first * NUM_CODES + second
        order = np.argsort(pairs)
        self._pairs, self._composed = pairs[order], composed[order].astype(np.int32)
        self._is_second = CharacterTable(np.isin(_CODES, second))

    def __call__(self, texts):
        """Decomposed texts in canonical order -> composed texts."""
        codes, rows = texts.codes
        is_second = tf.cast(self._is_second.look_up(codes), tf.bool)
        composed = tf.cond(
            tf.reduce_any(is_second),
            lambda: self._compose(codes, rows, is_second),
            lambda: (codes, rows),
        )
        return texts.with_codes(*composed)

    def _compose(self, codes, rows, is_second):
        classes = _combining_classes().look_up(codes)
        is_new_row = starts_where(rows[1:] != rows[:-1], codes)
        place = tf.cast(tf.where(is_new_row | ((classes == 0) & ~is_second))[:, 0], tf.int32)
        end = tf.concat([place[1:], [tf.size(codes)]], axis=0)

        def take_next(place, end, starter, starter_code, last, codes):  # of each span
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
            return *selected(place < end, place, end, starter, starter_code, last), codes

        none = tf.fill(tf.shape(place), -1)
        *_, codes = until_empty(take_next, place, end, none, none, none, codes)
        return selected(codes != _REMOVED, codes, rows)


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
        codes, sizes, flat = (unicode_tables()[f"{name}_{k}"] for k in ("from", "lengths", "to"))
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

    def __call__(self, texts):
        """Map every code point of `Texts`."""
        codes, rows = texts.codes
        table, several = self._tables
        packed = table.look_up(codes)
        lengths = tf.bitwise.bitwise_and(packed, 31)
        places = tf.bitwise.right_shift(packed, 5)
        mapped = tf.cond(
            tf.reduce_all(lengths == 1),
            lambda: (codes + places, rows, tf.range(tf.size(codes))),
            lambda: _expand(codes, rows, lengths, places, several),
        )
        return texts.with_codes(*mapped)


def _expand(codes, rows, lengths, places, several):
    source = rows_of(lengths)  # [M]
    within = tf.range(tf.size(source)) - tf.gather(tf.cumsum(lengths, exclusive=True), source)
    places, is_one = tf.gather(places, source), tf.gather(lengths == 1, source)
    one = tf.gather(codes, source) + places
    one_of_several = tf.gather(several, tf.where(is_one, 0, places + within))
    return tf.where(is_one, one, one_of_several), tf.gather(rows, source), source


def _starts(lengths):
    """Start of each of several adjacent pieces: integer `[N]` -> the same."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _ranges(starts, lengths):
    """The positions in all pieces, concatenated: integers `[N]`, `[N]` -> `[sum(lengths)]`."""
    before = np.repeat(starts - _starts(lengths), lengths)
    return before + np.arange(len(before))
