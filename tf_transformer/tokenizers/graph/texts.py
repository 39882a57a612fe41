"""Texts in a graph, as strings or code points, the properties of characters, and tries."""

import functools
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.pipeline import SHARED_PATTERNS, byte_alphabet
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart


class Texts:
    """Texts as strings or as code points, converted only for a step that needs the other form."""

    is_start = True  # or bool `[N]`, False for a piece of a text that is not its first
    source = None  # or int32 `[C]`, the place in its text of the character each code point is from

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

    def with_codes(self, codes, rows, places=None):
        """The same number of texts, from code points, and the text and the old place of each."""
        texts = Texts(self.size, codes=codes, rows=rows)
        if self.source is not None:
            texts.source = tf.gather(self.source, places)
        return texts

    @property
    def codes(self):
        """int32 `[C]` code points, int64 `[C]` the text of each."""
        if self._codes is not None:
            return self._codes, self._rows
        codes = tf.strings.unicode_decode(self._strings, "UTF-8", errors="replace")
        return codes.values, rows_of(codes.row_lengths())

    @property
    def strings(self):
        """string `[N]` of valid UTF-8."""
        if self._strings is not None:
            return self._strings if self._is_valid else repair_utf8(self._strings)
        codes = self._codes, self._rows, self.size
        texts = tf.RaggedTensor.from_value_rowids(*codes, validate=False)
        return tf.strings.unicode_encode(texts, "UTF-8")


def repair_utf8(strings):
    r"""Replace invalid bytes with U+FFFD, like Python's `decode("utf-8", errors="replace")`."""
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")


def starts_where(differs, codes):
    """Mark the first character and each that `differs` (bool `[C - 1]`) from the previous one."""
    return tf.concat([[True], differs], axis=0)[: tf.size(codes)]  # [C]


def changes(values):
    """Mark the first value and each that differs from the previous one."""
    return starts_where(values[1:] != values[:-1], values)


def previous(values):
    """The value before each of `values`; zero or False if there is none."""
    return tf.concat([tf.zeros_like(values[:1]), values], axis=0)[: tf.size(values)]


def following(values, last):
    """The value after each of `values`; `last` if there is none."""
    return tf.concat([values[1:], tf.fill(tf.shape(values[:1]), last)], axis=0)


def numbers_of(starts):
    """The number of the run that each element is in, given where runs start."""
    return tf.cumsum(tf.cast(starts, tf.int32)) - 1


def selected(mask, *values):
    """The elements of each tensor where `mask` is True."""
    places = tf.where(mask)[:, 0]  # once, which tf.boolean_mask would repeat
    return tuple(tf.gather(value, places) for value in values)


def rows_of(lengths):
    """The row of each element of all rows, integers `[sum(lengths)]`."""
    # tf.repeat, and with it `value_rowids`, first makes all rows as long as the longest.
    ends = tf.cast(tf.cumsum(lengths), tf.int32)
    no_weights = tf.zeros([0], lengths.dtype)
    size = tf.cast(tf.reduce_sum(lengths), tf.int32)
    return tf.cumsum(tf.raw_ops.Bincount(arr=ends, size=size, weights=no_weights))


def spread(lengths):
    """The row of each element of all rows, and its place in the row, int32 `[sum(lengths)]`."""
    row = rows_of(lengths)
    return row, tf.range(tf.size(row)) - tf.gather(tf.cumsum(lengths, exclusive=True), row)


def until_empty(step, *state):
    """Repeat a step until its first tensor is empty; the first axis of each may change."""
    state = tuple(map(tf.convert_to_tensor, state))
    shapes = tuple(tf.TensorShape([None, *x.shape[1:]][: x.shape.rank]) for x in state)
    return tf.while_loop(lambda first, *_: tf.size(first) > 0, step, state, shapes)


def lookup_table(keys, values, default=-1):
    """A hash table; TensorFlow rejects an empty one, so include a key that never occurs."""
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    return tf.lookup.StaticHashTable(initializer, default)


def words_at(codes, rows, is_new, num_rows):
    """Group code points into words."""
    starts = tf.where(is_new)[:, 0]
    splits = tf.concat([starts, [tf.size(codes, tf.int64)]], axis=0)
    words = tf.RaggedTensor.from_row_splits(codes, splits, validate=False)
    words, rows = tf.strings.unicode_encode(words, "UTF-8"), tf.gather(rows, starts)
    return tf.RaggedTensor.from_value_rowids(words, rows, num_rows, validate=False)


def function_for(name, part, functions, also=()):
    """The function for the type of a part of a file."""
    function = functions.get(part.get("type"))
    if function is None:
        raise UnsupportedPart.of(name, sorted([*functions, *also]), part.get("type"))
    return function


def literal(text):
    r"""The RE2 regular expression that matches a text literally."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def shared_pattern(part, name, also=()):
    r"""The RE2 regular expression of a part's "pattern", known to match as in the Rust package."""
    if len(part["pattern"]) != 1:
        raise UnsupportedPart.of(f"{name}.pattern", "one String or Regex", part["pattern"])
    [(kind, pattern)] = part["pattern"].items()
    if kind == "String" and pattern:
        return literal(pattern)
    if pattern not in SHARED_PATTERNS:
        expected = [*SHARED_PATTERNS, *also, "any String"]
        raise UnsupportedPart.of(f"{name}.pattern", expected, pattern)
    return pattern


def replaced(strings, pattern, content):
    """Replace all matches of a regular expression with a literal text."""
    # On an invalid reference to a group TensorFlow would only log an error and replace nothing.
    return tf.strings.regex_replace(strings, pattern, content.replace("\\", "\\\\"))


def num_bytes(codes):
    """The length of each code point in UTF-8."""
    longer = (tf.cast(codes >= least, tf.int32) for least in (0x80, 0x800, 0x10000))
    return 1 + tf.add_n(list(longer))


def words_of_characters(words):
    """Split words into characters."""
    codes = tf.strings.unicode_decode(words, "UTF-8")
    places = rows_of(codes.row_lengths()), codes.row_starts(), codes.row_limits()
    return codes.values, *(tf.cast(part, tf.int32) for part in places)


BYTE_OF_LETTER = {letter: byte for byte, letter in enumerate(byte_alphabet())}


def bytes_of_letters(text):
    """Return the bytes that a token of a byte-level vocabulary stands for."""
    is_spelled = BYTE_OF_LETTER.keys() >= set(text)
    return bytes(map(BYTE_OF_LETTER.get, text)) if is_spelled else None


def bytes_of_words(words):
    """Split words into bytes. N bytes of all words."""
    values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)  # [N]
    return tf.cast(values, tf.int32), rows_of(tf.strings.length(words))


def follow(start, goal, jump_at):
    """Jump from position to position in every word until its goal."""
    start = tf.convert_to_tensor(start)

    def step(words, places, is_visited, arrives):
        jumps = tf.gather(jump_at, places)
        words, places, jumps = selected(jumps != 0, words, places, jumps)
        is_visited = marked(is_visited, places)
        places += jumps
        is_there = places == tf.gather(goal, words)
        arrives = marked(arrives, tf.boolean_mask(words, is_there))
        return *selected(~is_there, words, places), is_visited, arrives

    visited, arrived = tf.zeros_like(jump_at, tf.bool), tf.zeros_like(start, tf.bool)
    *_, visited, arrived = until_empty(step, tf.range(tf.size(start)), start, visited, arrived)
    return visited, arrived


def marked(flags, places):
    """The flags, and True at some places."""
    marks = tf.fill(tf.shape(places), True)
    return tf.tensor_scatter_nd_update(flags, places[:, tf.newaxis], marks)


_PAGE = 256


class CharacterTable:
    """One number for each code point, stored in pages; identical pages are stored once."""

    def __init__(self, values):
        numbers = {}  # of distinct pages
        pages = map(bytes, np.asarray(values, np.int32).reshape(-1, _PAGE))
        starts = [numbers.setdefault(page, len(numbers)) * _PAGE for page in pages]
        self._values = np.frombuffer(b"".join(numbers), np.int32)
        self._start_of_page = np.array(starts, np.int32)

    def look_up(self, codes):
        """int32 `[C]` -> int32 `[C]`."""
        start = tf.gather(self._start_of_page, tf.bitwise.right_shift(codes, 8))
        return tf.gather(self._values, start + tf.bitwise.bitwise_and(codes, _PAGE - 1))


NUM_CODES = 0x110000
_CODES = np.arange(NUM_CODES, dtype=np.int32)

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


@functools.cache
def unicode_tables():
    """The properties of characters: dict of arrays; `make_unicode_tables.py` made the file."""
    with np.load(Path(__file__).with_name("unicode.npz")) as file:
        return dict(file)


def property_of_all(name):
    """A property of all characters: "classes" as bit sets, or the "combining_class" of marks."""
    starts = np.append(unicode_tables()[f"{name}_starts"], NUM_CODES)
    return np.repeat(unicode_tables()[f"{name}_values"], np.diff(starts))


def characters_of(name):
    """All characters of a class: bool `[0x110000]`."""
    return property_of_all("classes") >> _CLASSES.index(name) & 1 == 1


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
        becomes[ranges(_starts(lengths)[codes], sizes)] = flat
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
        becomes = other._becomes[ranges(_starts(other._lengths)[self._becomes], sizes)]
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

        def expand():
            is_one = lengths == 1
            expanded, source = expanded_codes(codes + places, is_one, lengths, places, several)
            return expanded, tf.gather(rows, source), source

        mapped = tf.cond(
            tf.reduce_all(lengths == 1),
            lambda: (codes + places, rows, tf.range(tf.size(codes))),
            expand,
        )
        return texts.with_codes(*mapped)


def expanded_codes(codes, stays, lengths, starts, sequences):
    """Replace those that do not stay with parts of `sequences`; returns codes and their sources."""
    source, within = spread(lengths)
    stays = tf.gather(stays, source)
    place = tf.where(stays, 0, tf.gather(starts, source) + within)
    return tf.where(stays, tf.gather(codes, source), tf.gather(sequences, place)), source


def _starts(lengths):
    """Start of each of several adjacent pieces: integer `[N]` -> the same."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def ranges(starts, lengths):
    """The positions in all pieces, concatenated: integers `[N]`, `[N]` -> `[sum(lengths)]`."""
    before = np.repeat(starts - _starts(lengths), lengths)
    return before + np.arange(len(before))


class Trie(tf.Module):
    """Finds the tokens that begin at each of many positions, in parallel."""

    def __init__(self, *vocabularies):
        super().__init__(name="trie")
        children, tokens = {}, {}  # node * NUM_CODES + code -> node, and node -> token
        num_nodes = len(vocabularies)
        for root, vocabulary in enumerate(vocabularies):
            for token, number in vocabulary.items():
                node = root
                for character in token:
                    child = children.setdefault(node * NUM_CODES + ord(character), num_nodes)
                    num_nodes += child == num_nodes
                    node = child
                tokens[node] = number
        self._token_of_node = np.full(num_nodes, -1, np.int32)
        self._token_of_node[list(tokens)] = list(tokens.values())
        keys, values = [-1, *children], [-1, *children.values()]  # -1 matches no node
        self._children = lookup_table(tf.constant(keys, tf.int64), tf.constant(values, tf.int32))

    def walk(self, codes, end, root):
        """Walk down the tree from every code point: start, length and number of each token."""

        def step(places, nodes, depth, found):
            places, nodes = selected(places + depth < tf.gather(end, places), places, nodes)
            keys = tf.cast(nodes, tf.int64) * NUM_CODES
            keys += tf.cast(tf.gather(codes, places + depth), tf.int64)
            nodes = self._children.lookup(keys)
            places, nodes = selected(nodes >= 0, places, nodes)
            ids = tf.gather(self._token_of_node, nodes)
            depth += 1
            matches = tf.stack([places, tf.fill(tf.shape(places), depth), ids], axis=1)
            matches = tf.boolean_mask(matches, ids >= 0)
            return places, nodes, depth, tf.concat([found, matches], axis=0)

        found = tf.zeros([0, 3], tf.int32)
        *_, found = until_empty(step, tf.range(tf.size(codes)), root, 0, found)
        return tf.unstack(found, axis=1)

    def longest(self, codes, end, root):
        """The length and number of the longest token at every code point; length 0 if none."""
        places, lengths, ids = self.walk(codes, end, root)
        longest = tf.math.unsorted_segment_max(lengths, places, tf.size(codes))
        is_longest = lengths == tf.gather(longest, places)
        places, lengths, ids = selected(is_longest, places[:, tf.newaxis], lengths, ids)
        return (tf.scatter_nd(places, values, [tf.size(codes)]) for values in (lengths, ids))
