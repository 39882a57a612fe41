"""The places of tokens in a text. C characters, V vocabulary, B batch, T ids of one text."""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import (
    BYTE_OF_LETTER,
    CharacterTable,
    changes,
    characters_of,
    previous,
    rows_of,
    selected,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart

_DECOMPOSE = ("BertNormalizer", "NFC", "NFD", "NFKC", "NFKD")
_NORMALIZERS = (*_DECOMPOSE, "Lowercase", "Nmt", "Precompiled", "Replace", "StripAccents")
_DROP_SPACES = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
_PRE_TOKENIZERS = (*_DROP_SPACES, "ByteLevel", "Digits", "Metaspace", "Punctuation", "Split")
_SPACE = ord(" ")


class Offsets:
    """Follows the places of characters through a file's steps, as the Rust package does."""

    def __init__(self, file):
        part = file.content.get
        steps = _steps_of(part, "normalizer", "normalizers", _NORMALIZERS)
        replaced = [
            (step["pattern"], step["content"]) for step in steps if step["type"] == "Replace"
        ]
        if any("String" not in pattern or len(text) != 1 for pattern, text in replaced):
            expected = "for offsets a String and one character"
            raise UnsupportedPart.of("normalizer.pattern", expected, replaced)
        kinds = [step["type"] for step in steps if step["type"] != "Replace"]
        if {*_DECOMPOSE} & {*kinds[1:]}:  # they sort marks, which must not be parts of a character
            raise UnsupportedPart.of("normalizer", f"for offsets {_DECOMPOSE} first", kinds)
        steps = _steps_of(part, "pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS)
        self._drops_spaces = any(step["type"] in _DROP_SPACES for step in steps)
        self._prefixes = _prefixes(steps)
        texts = [token.content for token in file.added_tokens if not token.special]
        if texts:
            raise UnsupportedPart.of("added_tokens", "special tokens only, for offsets", texts[:5])
        self._keeps_prefix = None  # or whether the first space of a text was added
        self._white_space = CharacterTable(characters_of("white_space"))
        spaces = "".join(map(chr, np.flatnonzero(characters_of("white_space"))))
        spaces += next(letter for letter, byte in BYTE_OF_LETTER.items() if byte == _SPACE)
        for step in _steps_of(part, "post_processor", "processors"):
            if step.get("trim_offsets"):
                self._keeps_prefix = step.get("add_prefix_space", False)
                sizes = [
                    (len(token) - len(token.lstrip(spaces)), len(token) - len(token.rstrip(spaces)))
                    for token in file.vocabulary
                ]
                self._spaces = np.array(sizes, np.int32)  # [V, 2], before and after a token

    def of_words(self, texts):
        """The source of each character of the words of normalized `Texts`: int32 `[C]`."""
        codes, rows = texts.codes
        source, begins = texts.source, changes(rows)
        if self._drops_spaces:
            is_space = tf.cast(self._white_space.look_up(codes), tf.bool)
            begins |= previous(is_space)
            codes, begins, source = selected(~is_space, codes, begins, source)
        if self._prefixes:
            has_one = tf.reduce_any(codes[:, tf.newaxis] == self._prefixes, axis=1)
            counts = 1 + tf.cast(begins & ~has_one, tf.int32)
            source = tf.gather(source, rows_of(counts))
        return source

    def trimmed(self, ids, offsets):
        """Leave out the spaces at the ends of tokens, if the file does: ragged `[B, (T), 2]`."""
        if self._keeps_prefix is None:
            return offsets
        start, end = tf.unstack(offsets.values, axis=1)
        before, after = tf.unstack(tf.gather(self._spaces, ids.values), axis=1)
        if self._keeps_prefix:
            is_first = tf.ragged.range(ids.row_lengths()).values == 0
            before = tf.where((is_first | (start == 0)) & (before == 1), 0, before)
        start = tf.minimum(start + before, end)
        end = tf.where(end >= after, tf.maximum(end - after, start), end)
        return offsets.with_values(tf.stack([start, end], axis=1))


def _steps_of(part, name, inner, known=None):
    """The steps of a part of a file; refused if one is not of a known type."""
    steps = [part(name)] if part(name) else []
    while any(step["type"] == "Sequence" for step in steps):
        steps = [one for s in steps for one in (s[inner] if s["type"] == "Sequence" else [s])]
    for step in steps:
        if known and step["type"] not in known:
            raise UnsupportedPart.of(name, f"for offsets one of {known}", step["type"])
    return steps


def _prefixes(steps):
    """The code points before which no prefix is added, if one is added to other texts."""
    kinds = [step["type"] for step in steps]
    for step in steps:
        if step["type"] == "Split" and step["behavior"] != "Isolated" and not step["invert"]:
            raise UnsupportedPart.of("pre_tokenizer.behavior", "for offsets Isolated", "Removed")
    metaspace = [step for step in steps if step["type"] == "Metaspace"]
    adds = [step for step in metaspace if step.get("prepend_scheme", "always") != "never"]
    adds += [step for step in steps if step["type"] == "ByteLevel" and step["add_prefix_space"]]
    if (metaspace or adds) and kinds[:-1] not in ([], ["WhitespaceSplit"]):
        expected = "for offsets only WhitespaceSplit before a step that adds spaces"
        raise UnsupportedPart.of("pre_tokenizer", expected, kinds)
    return [_SPACE, *(ord(step["replacement"]) for step in metaspace)] if adds else []
