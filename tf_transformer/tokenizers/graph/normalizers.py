"""The normalizers of a `tokenizer.json` as functions of `Texts`. C code points."""

import functools
import json

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import (
    CharacterMap,
    CharacterTable,
    Composition,
    characters_of,
    combining_classes,
    replaced,
    shared_pattern,
    starts_where,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart

_SPACE = ord(" ")


def build_normalizer(part):
    """Build the function that a "normalizer" describes.

    Adjacent steps that map characters are fused into one step.
    """
    steps = _fused_steps(json.dumps(part))

    def normalize(texts):
        for step in steps:
            if isinstance(step, _OnStrings):
                texts = texts.with_strings(step(texts.strings))
            else:
                texts = texts.with_codes(*step(*texts.codes))
        return texts

    return normalize


# Fusing takes longer than all else in reading a small tokenizer, and the maps never change.
@functools.lru_cache(maxsize=8)
def _fused_steps(part):
    steps = []
    for step in _steps(json.loads(part)):
        if steps and isinstance(step, CharacterMap) and isinstance(steps[-1], CharacterMap):
            step = steps.pop().then(step)
        steps.append(step)
    return tuple(steps)


class _OnStrings:
    """A step that takes and returns whole strings."""

    def __init__(self, function):
        self._function = function

    def __call__(self, strings):
        return self._function(strings)


def _steps(part):
    if part is None:
        return []
    maker = _MAKERS.get(part.get("type"))
    if maker is None:
        raise UnsupportedPart.of("normalizer", sorted(_MAKERS), part.get("type"))
    return maker(part)


def _sequence(part):
    return [step for inner in part["normalizers"] for step in _steps(inner)]


def _bert(part):
    steps = []
    if part["clean_text"]:
        steps.append(_replacing("bert_removed"))
        steps.append(_replacing("bert_space", _SPACE))
    if part["handle_chinese_chars"]:
        steps.append(CharacterMap.surrounding(characters_of("chinese"), _SPACE))
    strip_accents = part["strip_accents"]
    if part["lowercase"] if strip_accents is None else strip_accents:
        steps += [CharacterMap.named("nfd"), _Order(), _replacing("nonspacing_mark")]
    if part["lowercase"]:
        steps.append(CharacterMap.named("lowercase"))
    return steps


def _decomposed(name):
    return [CharacterMap.named(name), _Order()]


def _nmt(_):
    return [_replacing("nmt_removed"), _replacing("nmt_space", _SPACE)]


def _replacing(name, code=None):
    return CharacterMap.replacing(characters_of(name), code)


def _strip(part):
    spaces = "".join(rf"\x{{{code:x}}}" for code in np.flatnonzero(characters_of("white_space")))
    ends = [f"^[{spaces}]+"] * part["strip_left"] + [f"[{spaces}]+$"] * part["strip_right"]
    return [_OnStrings(lambda s: replaced(s, "|".join(ends), ""))] if ends else []


def _replace(part):
    pattern = shared_pattern(part, "normalizer")
    return [_OnStrings(lambda strings: replaced(strings, pattern, part["content"]))]


def _prepend(part):
    return [_OnStrings(lambda strings: tf.where(strings == "", "", part["prepend"] + strings))]


_MAKERS = {
    "BertNormalizer": _bert,
    "Lowercase": lambda _: [CharacterMap.named("lowercase")],
    "NFC": lambda _: [*_decomposed("nfd"), Composition()],
    "NFD": lambda _: _decomposed("nfd"),
    "NFKC": lambda _: [*_decomposed("nfkd"), Composition()],
    "NFKD": lambda _: _decomposed("nfkd"),
    "Nmt": _nmt,
    "Prepend": _prepend,
    "Replace": _replace,
    "Sequence": _sequence,
    "Strip": _strip,
    "StripAccents": lambda _: [_replacing("combining_mark")],
}


class _Order:
    """Unicode's canonical ordering: sorts adjacent marks by their combining class."""

    def __init__(self):
        self._classes = CharacterTable(combining_classes())

    def __call__(self, codes, rows):
        classes = self._classes.look_up(codes)
        same_row = rows[1:] == rows[:-1]
        is_out_of_order = (classes[1:] > 0) & (classes[1:] < classes[:-1]) & same_row
        return (
            tf.cond(
                tf.reduce_any(is_out_of_order),
                lambda: self._sort(codes, classes, same_row),
                lambda: codes,
            ),
            rows,
        )

    @staticmethod
    def _sort(codes, classes, same_row):
        # A run is a character and the marks after it; only the marks change order.
        run = tf.cumsum(tf.cast(starts_where((classes[1:] == 0) | ~same_row, codes), tf.int64))
        keys = run * 256 + tf.cast(classes, tf.int64)
        return tf.gather(codes, tf.argsort(keys, stable=True))
