"""Splits texts into words."""

import functools

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import (
    NUM_CODES,
    CharacterTable,
    Texts,
    characters_of,
    function_for,
    literal,
    replaced,
    selected,
    shared_pattern,
    starts_where,
    words_at,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart

_OTHER, _LETTER, _NUMBER, _SPACE = range(4)

_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")


@functools.cache
def _kinds():
    kinds = np.full(NUM_CODES, _OTHER)
    kinds[characters_of("letter")] = _LETTER
    kinds[characters_of("number")] = _NUMBER
    kinds[characters_of("regex_space")] = _SPACE
    return CharacterTable(kinds)


def _gpt2_words(texts):
    """Split texts as GPT-2 does, into words that include the space before them."""
    codes, rows = texts.codes
    kinds = _kinds().look_up(codes)
    is_first = starts_where(rows[1:] != rows[:-1], codes)  # of its text
    is_space = kinds == _SPACE
    is_blank = codes == ord(" ")
    # The last space of a run joins the word after it if it is " "; otherwise it is a word.
    before_word = _next(~is_space & ~is_first, False)
    is_last_space = is_space & before_word
    is_new = is_first | starts_where(kinds[1:] != kinds[:-1], codes) | is_last_space
    joins = starts_where(is_blank[:-1], codes) & ~is_space & ~is_first
    is_new &= ~joins
    # An apostrophe that begins a word and does not follow " " takes the ending with it.
    length = _ending_lengths(codes, is_first)  # letters of the ending after each code
    takes = is_new & (codes == ord("'")) & (length > 0)
    one, two = _previous(takes, 1), _previous(takes & (length == 2), 2)
    after_one = _previous(takes & (length == 1), 2)
    after_two = _previous(takes & (length == 2), 3)
    is_new = is_first | (is_new & ~one & ~two) | after_one | after_two
    return words_at(codes, rows, is_new, texts.size)


def _ending_lengths(codes, is_first):
    first, second = _next(codes, 0), _next(_next(codes, 0), 0)
    has_first = _next(~is_first, False)
    has_second = has_first & _next(has_first, False)
    length = tf.zeros_like(codes)
    for ending in _CONTRACTIONS:
        fits = has_first & (first == ord(ending[0]))
        if len(ending) == 2:
            fits &= has_second & (second == ord(ending[1]))
        length = tf.where(fits, len(ending), length)
    return length


def _next(values, last):
    """The successor of each position; `last` if there is none."""
    return tf.concat([values[1:], tf.fill(tf.shape(values[:1]), last)], axis=0)


def _previous(flags, steps):
    """The flag `steps` positions before each position; False if there is none."""
    none = tf.zeros_like(flags[:steps])
    return tf.concat([none, flags], axis=0)[: tf.size(flags)]


# A byte that never occurs in UTF-8 marks the ends of words.
_CUT = b"\xff"


def build_pre_tokenizer(part, is_start_kept=False):
    """Build the function that a "pre_tokenizer" describes; ByteLevel's bytes stay as they are."""
    if part is None:
        return _not_empty
    if part.get("prepend_scheme") == "first":
        if not is_start_kept:
            expected = "always or never with other steps"
            raise UnsupportedPart.of("pre_tokenizer.prepend_scheme", expected, "first")
        part = part | {"prepend_scheme": "always"}
    return function_for("pre_tokenizer", part, _MAKERS)(part)


def _sequence(part):
    steps = [build_pre_tokenizer(inner) for inner in part["pretokenizers"]]
    # No step returns empty words, so this one, which splits nothing, is only needed alone.
    steps = [step for step in steps if step is not _not_empty] or [_not_empty]

    def split(texts):
        first, *others = steps
        words = first(texts)
        for step in others:
            words = words.with_values(step(Texts.of(words.values, is_valid=True))).merge_dims(1, 2)
        return words

    return split


def _not_empty(texts):
    """Return each non-empty text as one word."""
    return _drop_empty(tf.RaggedTensor.from_uniform_row_length(texts.strings, 1))


def _drop_empty(words):
    return tf.ragged.boolean_mask(words, words.with_values(words.values != ""))


def _split(part):
    pattern = shared_pattern(part, "pre_tokenizer")
    marked = {"Isolated": _CUT + rb"\0" + _CUT, "Removed": _CUT}.get(part["behavior"])
    if marked is None or part["invert"] is not False:
        got = part["behavior"], part["invert"]
        raise UnsupportedPart.of("pre_tokenizer.behavior", "Isolated or Removed, not inverted", got)

    def split(texts):
        strings = tf.strings.regex_replace(texts.strings, pattern, marked)
        return _drop_empty(tf.strings.split(strings, _CUT))

    return split


def _metaspace(part):
    replacement = part["replacement"]
    if part.get("add_prefix_space") is False and part.get("prepend_scheme") != "never":
        scheme = part.get("prepend_scheme", "always")
        raise UnsupportedPart.of("pre_tokenizer.prepend_scheme", "never without a space", scheme)
    prepends = part.get("prepend_scheme", "always") != "never"

    def split(texts):
        strings = replaced(texts.strings, " ", replacement)
        if prepends:
            has_one = tf.strings.regex_full_match(strings, f"(?s)({literal(replacement)}.*)?")
            strings = tf.where(has_one, strings, replacement + strings)
        if not part.get("split", True):
            return _not_empty(texts.with_strings(strings))
        cut = tf.strings.regex_replace(strings, literal(replacement), _CUT + rb"\0")
        return _drop_empty(tf.strings.split(cut, _CUT))

    return split


def _by_class(removed=None, isolated=None, run=None):
    """Split by classes of characters."""
    tables = [name and CharacterTable(characters_of(name)) for name in (removed, isolated, run)]

    def split(texts):
        codes, rows = texts.codes
        is_removed, is_isolated, is_run = (
            tf.cast(table.look_up(codes), tf.bool) if table else tf.zeros_like(codes, tf.bool)
            for table in tables
        )
        differs = (rows[1:] != rows[:-1]) | (is_run[1:] != is_run[:-1])
        differs |= is_removed[:-1] | is_isolated[1:] | is_isolated[:-1]
        is_new = starts_where(differs, codes)
        return words_at(*selected(~is_removed, codes, rows, is_new), texts.size)

    return split


def _punctuation(part):
    if part.get("behavior", "Isolated") != "Isolated":
        raise UnsupportedPart.of("pre_tokenizer.behavior", "Isolated", part["behavior"])
    return _by_class(isolated="bert_punctuation")


def _digits(part):
    return _by_class(**{"isolated" if part["individual_digits"] else "run": "numeric"})


def _byte_level(part):
    words = _gpt2_words if part.get("use_regex", True) else _not_empty

    def split(texts):
        strings = texts.strings
        has_one = tf.strings.regex_full_match(strings, "(?s)( .*)?")
        return words(texts.with_strings(tf.where(has_one, strings, " " + strings)))

    return split if part["add_prefix_space"] else words


_MAKERS = {
    "BertPreTokenizer": lambda _: _by_class(removed="white_space", isolated="bert_punctuation"),
    "ByteLevel": _byte_level,
    "Digits": _digits,
    "Metaspace": _metaspace,
    "Punctuation": _punctuation,
    "Sequence": _sequence,
    "Split": _split,
    "Whitespace": lambda _: _by_class(removed="white_space", run="word"),
    "WhitespaceSplit": lambda _: _by_class(removed="white_space"),
}
