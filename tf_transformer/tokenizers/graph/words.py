"""Texts to words: the normalizers and pre-tokenizers of a `tokenizer.json`."""

import functools
import json
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.precompiled import Precompiled, SentencePieceNormalizer
from tf_transformer.tokenizers.graph.texts import (
    NUM_CODES,
    CharacterMap,
    CharacterTable,
    Texts,
    changes,
    characters_of,
    following,
    function_for,
    literal,
    numbers_of,
    previous,
    property_of_all,
    replaced,
    rows_of,
    selected,
    shared_pattern,
    spread,
    unicode_tables,
    until_empty,
    words_at,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart

_BLANK = ord(" ")
_REMOVED = -1  # instead of a code point


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
    return [] if part is None else function_for("normalizer", part, _NORMALIZERS)(part)


def _albert(part):
    """What ALBERT's authors do to a text before SentencePiece."""
    is_space = characters_of("white_space")
    is_space[0x1C:0x20] = True  # in Python's `str.split`
    steps = [
        CharacterMap.replacing(is_space, _BLANK),
        *_on_strings(lambda x: tf.strings.regex_replace(tf.strings.strip(x), " +", " ")),
        *_on_strings(lambda x: tf.strings.regex_replace(x, "``|''", '"')),
    ]
    if part["strip_accents"]:
        is_accent = property_of_all("combining_class") > 0
        steps += [*_decomposed("nfkd"), CharacterMap.replacing(is_accent)]
    return [*steps, CharacterMap.named("lowercase")] if part["lowercase"] else steps


def _bert(part):
    steps = []
    if part["clean_text"]:
        steps += [_replacing("bert_removed"), _replacing("bert_space", _BLANK)]
    if part["handle_chinese_chars"]:
        steps.append(CharacterMap.surrounding(characters_of("chinese"), _BLANK))
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
    pattern, content = shared_pattern(part, "normalizer"), part["content"]

    def replace(texts):
        if texts.source is None:
            return texts.with_strings(replaced(texts.strings, pattern, content))
        # One character has the place of the last of those that it replaces.
        mark = chr(NUM_CODES - 1)
        filler = mark * (len(part["pattern"]["String"]) - 1)
        codes, rows = texts.codes
        marked, _ = Texts.of(replaced(texts.strings, pattern, filler + content)).codes
        kept = (marked == codes) | (marked != ord(mark))
        return texts.with_codes(*selected(kept, marked, rows), tf.where(kept)[:, 0])

    return [replace]


_NORMALIZERS = {
    "ALBERT": _albert,
    "BertNormalizer": _bert,
    "Lowercase": lambda _: [CharacterMap.named("lowercase")],
    "NFC": lambda _: [*_decomposed("nfd"), Composition()],
    "NFD": lambda _: _decomposed("nfd"),
    "NFKC": lambda _: [*_decomposed("nfkd"), Composition()],
    "NFKD": lambda _: _decomposed("nfkd"),
    "Nmt": lambda _: [_replacing("nmt_removed"), _replacing("nmt_space", _BLANK)],
    "Precompiled": lambda part: [Precompiled(part)],
    "Prepend": lambda part: _on_strings(lambda x: tf.where(x == "", "", part["prepend"] + x)),
    "Replace": _replace,
    "SentencePiece": lambda part: [SentencePieceNormalizer(part)],
    "Sequence": lambda part: [step for inner in part["normalizers"] for step in _steps(inner)],
    "Strip": _strip,
    "StripAccents": lambda _: [_replacing("combining_mark")],
}


def _put_in_order(texts):
    """Unicode's canonical ordering: sorts adjacent marks by their combining class."""
    codes, rows = texts.codes
    classes = _combining_classes().look_up(codes)
    begins_row = changes(rows)
    is_out_of_order = (classes > 0) & (classes < previous(classes)) & ~begins_row

    def put_in_order():
        # A run is a character and the marks after it; only the marks change order.
        run = tf.cast(numbers_of((classes == 0) | begins_row), tf.int64)
        return tf.argsort(run * 256 + tf.cast(classes, tf.int64), stable=True)

    order = tf.range(tf.size(codes))
    order = tf.cond(tf.reduce_any(is_out_of_order), put_in_order, lambda: order)
    places = None
    if texts.source is not None:
        # As in the Rust package, the first of the sorted marks is where the first was before; those
        # that one character decomposes to, which the package calls added, share its place.
        is_first = changes(texts.source) | begins_row
        places = tf.gather(tf.where(is_first)[:, 0], numbers_of(tf.gather(is_first, order)))
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
        self._is_second = CharacterTable(np.isin(np.arange(NUM_CODES), second))

    def __call__(self, texts):
        """Decomposed texts in canonical order -> composed texts."""
        codes, rows = texts.codes
        is_second = tf.cast(self._is_second.look_up(codes), tf.bool)
        composed = tf.cond(
            tf.reduce_any(is_second),
            lambda: self._compose(codes, rows, is_second),
            lambda: codes,
        )
        kept, places = composed != _REMOVED, None
        if texts.source is not None:
            places = self._places(kept, rows, codes, texts.source)
        return texts.with_codes(*selected(kept, composed, rows), places)

    @staticmethod
    def _places(kept, rows, codes, source):
        """The old place of each character that is kept."""
        # As the Rust package counts: each takes the next places, as many as it and the marks that
        # joined it had; one without any shares that of the character before it.
        is_first = changes(source) | changes(rows)
        is_letter = kept & (_combining_classes().look_up(codes) == 0)
        letters = tf.concat([[0], tf.where(is_letter)[:, 0]], axis=0)
        letter = tf.gather(letters, tf.cumsum(tf.cast(is_letter, tf.int32)))  # that a mark joins
        home = tf.where(kept, tf.range(tf.size(codes, tf.int64)), letter)
        counts = tf.math.unsorted_segment_sum(tf.cast(is_first, tf.int32), home, tf.size(codes))
        [counts] = selected(kept, counts)
        number = tf.cumsum(counts, exclusive=True) - tf.cast(counts == 0, tf.int32)
        return tf.gather(tf.where(is_first)[:, 0], number)

    def _compose(self, codes, rows, is_second):
        classes = _combining_classes().look_up(codes)
        begins = changes(rows) | ((classes == 0) & ~is_second)
        place = tf.cast(tf.where(begins)[:, 0], tf.int32)
        end = following(place, tf.size(codes))

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
        return codes


_OTHER, _LETTER, _NUMBER, _SPACE, _NEWLINE = range(5)
_NONE = -1  # before the first and after the last character of a text

_ENDINGS = ("s", "t", "re", "ve", "m", "ll", "d")


class _WordRules(NamedTuple):
    """What differs between GPT-2's regular expression and those derived from it."""

    ignores_case: bool  # in contractions, as "'S"
    has_newlines: bool  # symbols take those after them, white space ends at its last one
    after_blank: tuple  # the kinds of runs that take a " " before them
    prefixes: tuple  # the kinds of characters that letters take before them, one at most
    most_digits: int | None  # of one word


_GPT2 = _WordRules(False, False, (_OTHER, _LETTER, _NUMBER), (), None)
_GPT4 = _WordRules(True, True, (_OTHER,), (_SPACE, _OTHER), 3)

_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Each matches any character, so a text is nothing but words.
_WORD_RULES = {
    _GPT2_PATTERN: _GPT2,
    _GPT4_PATTERN: _GPT4,  # Llama 3 too
    _GPT4_PATTERN.replace("{1,3}", ""): _GPT4._replace(most_digits=1),  # Qwen2
}


@functools.cache
def _kinds(has_newlines):
    kinds = np.full(NUM_CODES, _OTHER)
    kinds[characters_of("letter")] = _LETTER
    kinds[characters_of("number")] = _NUMBER
    kinds[characters_of("regex_space")] = _SPACE
    if has_newlines:
        kinds[[ord("\r"), ord("\n")]] = _NEWLINE
    return CharacterTable(kinds)


def _words(rules, texts):
    """Split texts as GPT-2 or a successor does, into words that include the space before them."""
    codes, rows = texts.codes
    kinds = _kinds(rules.has_newlines).look_up(codes)
    is_first = changes(rows)  # of its text
    begins = is_first | changes(kinds)
    # R runs of characters of one kind: most words are a run, or a run that joins the one before it.
    starts = tf.cast(tf.where(begins)[:, 0], tf.int32)  # [R]
    lengths = following(starts, tf.size(codes)) - starts
    first, kind = tf.gather(is_first, starts), tf.gather(kinds, starts)
    before = tf.where(first, _NONE, previous(kind))
    after = tf.where(following(first, True), _NONE, following(kind, _NONE))
    follows_blank = ~first & tf.gather(previous(codes == _BLANK), starts)
    joins = follows_blank & _is_any(kind, rules.after_blank)
    joins |= (kind == _NEWLINE) & _is_any(before, (_OTHER, _SPACE))
    # Spaces between newlines are part of one word, unless a symbol took the newlines before them.
    is_between = (before == _NEWLINE) & (kind == _SPACE) & (after == _NEWLINE)
    joins |= is_between & (previous(before) != _OTHER)
    # The last of several spaces is a word of its own or a prefix, the last of several symbols not.
    is_prefix = (kind == _SPACE) | (lengths == 1) & ~joins
    joins |= (kind == _LETTER) & _is_any(before, rules.prefixes) & previous(is_prefix)
    run, place = spread(lengths)
    is_new = begins & ~tf.gather(joins, run)
    is_new |= (kinds == _SPACE) & following(begins & ~is_first & (kinds < _SPACE), False)
    if rules.most_digits:
        is_new |= (kinds == _NUMBER) & (place % rules.most_digits == 0)
    is_new = _with_endings(is_new, codes, rows, rules.ignores_case)
    return words_at(codes, rows, is_new, texts.size)


def _with_endings(is_new, codes, rows, ignores_case):
    """Let each apostrophe that begins a word, K of them, take the ending after it."""
    place = tf.cast(tf.where(is_new & (codes == ord("'")))[:, 0], tf.int32)  # [K]
    following = place[:, tf.newaxis] + [1, 2]  # [K, 2]
    codes, row = (tf.gather(tf.pad(x, [[0, 2]]), following) for x in (codes, rows + 1))
    is_inside = row == tf.gather(rows + 1, place)[:, tf.newaxis]
    letters = tf.where(is_inside, _letters(ignores_case).look_up(codes), 0)
    endings = np.array([[*map(ord, ending.ljust(2, "\0"))] for ending in _ENDINGS])  # [E, 2]
    fits = (letters[:, tf.newaxis] == endings) | (endings == 0)  # [K, E, 2]
    length = tf.where(tf.reduce_all(fits, axis=2), [*map(len, _ENDINGS)], 0)  # [K, E]
    length = tf.reduce_max(length, axis=1)
    place, length = selected(length > 0, place + 1, length)
    places = tf.concat([place, place + length], axis=0)[:, tf.newaxis]
    begins = tf.range(tf.size(places)) >= tf.size(place)
    return tf.tensor_scatter_nd_update(tf.pad(is_new, [[0, 1]]), places, begins)[:-1]


@functools.cache
def _letters(ignores_case):
    """The letter of an ending that each character matches, or 0."""
    lower = "".join(_ENDINGS)
    # Of all characters, only these are equal to one of the letters except for their case.
    others = lower.upper() + "\N{LATIN SMALL LETTER LONG S}" if ignores_case else ""
    letters = np.zeros(NUM_CODES)
    for letter in lower + others:
        letters[ord(letter)] = ord(letter.casefold())
    return CharacterTable(letters)


def _is_any(values, choices):
    return tf.reduce_any(values[:, tf.newaxis] == tf.constant(choices, tf.int32), axis=1)


# A byte that never occurs in UTF-8 marks the ends of words.
_CUT = b"\xff"


def build_pre_tokenizer(part, is_start_kept=False):
    """Build the function that a "pre_tokenizer" describes; ByteLevel's bytes stay as they are."""
    if part is None:
        return _not_empty
    if part.get("prepend_scheme") == "first" and not is_start_kept:
        expected = "always or never with other steps"
        raise UnsupportedPart.of("pre_tokenizer.prepend_scheme", expected, "first")
    return function_for("pre_tokenizer", part, _PRE_TOKENIZERS)(part)


def _pre_tokenizers_of(part):
    steps = [build_pre_tokenizer(inner) for inner in part["pretokenizers"]]
    # No step returns empty words, so this one, which splits nothing, is only needed alone.
    first, *others = [step for step in steps if step is not _not_empty] or [_not_empty]

    def split(texts):
        words = first(texts)
        for step in others:
            words = words.with_values(step(Texts.of(words.values, is_valid=True))).merge_dims(1, 2)
        return words

    return split


def _not_empty(texts):
    """Return each non-empty text as one word."""
    return _drop_empty(tf.RaggedTensor.from_uniform_row_length(texts.strings, 1))


def _drop_empty(words):
    rows = rows_of(words.row_lengths())
    kept, rows = selected(words.values != "", words.values, rows)
    return tf.RaggedTensor.from_value_rowids(kept, rows, words.nrows(), validate=False)


def _split(part):
    # A file may also contain the characters of "[\r\n]" instead of escapes.
    pattern = part["pattern"].get("Regex", "").replace("\r", r"\r").replace("\n", r"\n")
    rules = _WORD_RULES.get(pattern)
    if rules is None:
        pattern = shared_pattern(part, "pre_tokenizer", also=_WORD_RULES)
        marks = {("Isolated", False): _CUT + rb"\0" + _CUT, ("Removed", False): _CUT}
    else:  # nothing lies between such words, so both mean the same
        marks = {("Isolated", False): None, ("Removed", True): None}
    behavior = part["behavior"], part["invert"]
    if behavior not in marks:
        raise UnsupportedPart.of("pre_tokenizer.behavior", [*marks], behavior)
    if rules is not None:
        return functools.partial(_words, rules)

    def split(texts):
        strings = tf.strings.regex_replace(texts.strings, pattern, marks[behavior])
        return _drop_empty(tf.strings.split(strings, _CUT))

    return split


def _metaspace(part):
    replacement = part["replacement"]
    scheme = part.get("prepend_scheme", "always")
    if part.get("add_prefix_space") is False and scheme != "never":
        raise UnsupportedPart.of("pre_tokenizer.prepend_scheme", "never without a space", scheme)

    def split(texts):
        strings = replaced(texts.strings, " ", replacement)
        if scheme != "never":
            has_one = tf.strings.regex_full_match(strings, f"(?s)({literal(replacement)}.*)?")
            if scheme == "first":
                has_one |= tf.logical_not(texts.is_start)
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
        is_new = changes(rows) | changes(is_run) | is_isolated
        is_new |= previous(is_removed | is_isolated)
        return words_at(*selected(~is_removed, codes, rows, is_new), texts.size)

    return split


def _punctuation(part):
    if part.get("behavior", "Isolated") != "Isolated":
        raise UnsupportedPart.of("pre_tokenizer.behavior", "Isolated", part["behavior"])
    return _by_class(isolated="bert_punctuation")


def _digits(part):
    return _by_class(**{"isolated" if part["individual_digits"] else "run": "numeric"})


def _byte_level(part):
    words = functools.partial(_words, _GPT2) if part.get("use_regex", True) else _not_empty

    def split(texts):
        strings = texts.strings
        has_one = tf.strings.regex_full_match(strings, "(?s)( .*)?")
        return words(texts.with_strings(tf.where(has_one, strings, " " + strings)))

    return split if part["add_prefix_space"] else words


_PRE_TOKENIZERS = {
    "BertPreTokenizer": lambda _: _by_class(removed="white_space", isolated="bert_punctuation"),
    "ByteLevel": _byte_level,
    "Digits": _digits,
    "Metaspace": _metaspace,
    "Punctuation": _punctuation,
    "Sequence": _pre_tokenizers_of,
    "Split": _split,
    "Whitespace": lambda _: _by_class(removed="white_space", run="word"),
    "WhitespaceSplit": lambda _: _by_class(removed="white_space"),
}
