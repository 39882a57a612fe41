"""SentencePiece's normalization by a precompiled map of strings. C code points.

A map is a double array (Aoe 1989) of UTF-8 keys, followed by the texts that replace them. The Rust
package and SentencePiece apply it differently, so there is a class for each.
"""

import base64
import functools

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import (
    NUM_CODES,
    CharacterTable,
    Trie,
    changes,
    expanded_codes,
    follow,
    following,
    num_bytes,
    numbers_of,
    previous,
    property_of_all,
    ranges,
    rows_of,
    selected,
    spread,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart

_LONGEST_KEY = 64  # bytes; a longer one is a loop of nodes
_SPACE, _METASPACE, _JOINER = ord(" "), 0x2581, 0x200D
_SYMBOL = -2  # instead of a rule: a user-defined symbol, which stays as it is


def _rules(blob):
    """The rules of a map: dict of string -> string."""
    size = int.from_bytes(blob[:4], "little")
    units = np.frombuffer(blob, "<u4", size // 4, offset=4).astype(np.int64)
    texts = blob[4 + size :]
    # The children of a node are at its base, each combined with its label: a byte of a key.
    labels = units & 0x800000FF
    bases = np.arange(len(units)) ^ (units >> 10 << ((units & 0x200) >> 6))
    children = np.flatnonzero((labels > 0) & (labels < 256))
    children = children[np.argsort(children ^ labels[children], kind="stable")]
    base_of_child = children ^ labels[children]
    nodes, keys, rules = np.array([0]), np.zeros((1, 0), np.uint8), {}
    while len(nodes):
        if keys.shape[1] > _LONGEST_KEY or len(keys) > NUM_CODES:
            raise ValueError(f"keys of more than {_LONGEST_KEY} bytes")
        first = np.searchsorted(base_of_child, bases[nodes], "left")
        counts = np.searchsorted(base_of_child, bases[nodes], "right") - first
        parent = np.repeat(np.arange(len(nodes)), counts)
        nodes = children[ranges(first, counts)]
        keys = np.column_stack([keys[parent], labels[nodes].astype(np.uint8)])
        has_result = np.flatnonzero(units[nodes] & 0x100)
        starts = units[bases[nodes[has_result]]] & 0x7FFFFFFF
        for key, start in zip(keys[has_result], starts, strict=True):
            result = texts[start : texts.index(b"\0", start)]
            rules[key.tobytes().decode()] = result.decode()
    return rules


class _Map(tf.Module):
    """Replaces matches of a map."""

    def __init__(self, rules):
        super().__init__(name="precompiled_map")
        self.trie = Trie({key: number for number, key in enumerate(rules)})
        self._lengths = np.array([*map(len, rules.values()), 1], np.int32)  # one more for no rule
        self._starts = np.cumsum(self._lengths, dtype=np.int32) - self._lengths
        self._codes = np.array([*map(ord, "".join(rules.values())), 0], np.int32)

    def replaced(self, codes, number):
        """The result of each rule, -1 for none: int32 `[M]` code points, and the source of each."""
        has_none = number < 0
        number = tf.where(has_none, len(self._lengths) - 1, number)
        lengths, starts = tf.gather(self._lengths, number), tf.gather(self._starts, number)
        return expanded_codes(codes, has_none, lengths, starts, self._codes)


@functools.lru_cache(maxsize=4)
def _map_of(text):
    """The map in base64; most models of SentencePiece have one of the same two."""
    try:
        rules = _rules(base64.b64decode(text, validate=True))
    except (IndexError, ValueError) as error:
        expected = "a map of valid UTF-8 strings"
        raise UnsupportedPart.of("normalizer.precompiled_charsmap", expected, error) from error
    with tf.init_scope():
        return _Map(rules)


class Precompiled(tf.Module):
    """The normalizer `Precompiled` of the Rust package."""

    # A grapheme cluster of less than 6 bytes that begins with a key becomes the result of the
    # shortest such key: what follows it there is lost. Other characters are replaced alone.

    def __init__(self, part):
        super().__init__(name="precompiled")
        self._map = _map_of(part["precompiled_charsmap"])

    def __call__(self, texts):
        """Map every code point or short cluster of `Texts`."""
        codes, rows = texts.codes
        starts, cluster = _begins_cluster(codes, *_texts(rows))
        size = tf.gather(tf.math.segment_sum(num_bytes(codes), cluster), cluster)
        is_short = starts & (size < 6)
        place = tf.range(tf.size(codes))
        last = tf.gather(tf.math.segment_max(place, cluster), cluster)
        number = self._shortest(codes, tf.where(is_short, last, place) + 1)
        is_replaced = tf.gather(tf.boolean_mask(is_short & (number >= 0), starts), cluster)
        is_part = starts | ~is_replaced
        codes, part_rows, number = selected(is_part, codes, rows, number)
        codes, part = self._map.replaced(codes, number)
        places = None
        if texts.source is not None:
            starts = tf.boolean_mask(place, is_part)
            places = _places(part, starts, tf.size(rows), part_rows, texts.size)
        return texts.with_codes(codes, tf.gather(part_rows, part), places)

    def _shortest(self, codes, end):
        """The rule of the shortest key at every code point, -1 for none."""
        places, lengths, numbers = self._map.trie.walk(codes, end, tf.zeros_like(codes))
        shortest = tf.math.unsorted_segment_min(lengths, places, tf.size(codes))
        places, numbers = selected(lengths == tf.gather(shortest, places), places, numbers)
        none = tf.fill(tf.shape(codes), -1)
        return tf.tensor_scatter_nd_update(none, places[:, tf.newaxis], numbers)


def _places(part, start, size, rows, num_rows):
    """The old place of each result by its part, `[M]`, and the parts' starts and texts, `[P]`."""
    # As the Rust package counts: the results of a part take its places one by one, and further
    # results the last one. Parts without results are counted as places of the result before them,
    # and not at all at the start of a text.
    num_places = following(start, size) - start  # [P]
    num_results = tf.math.unsorted_segment_sum(tf.ones_like(part), part, tf.size(start))  # [P]
    first = tf.where(num_results > 0, start, size)
    first, begin = (tf.math.unsorted_segment_min(x, rows, num_rows) for x in (first, start))
    not_counted = tf.gather(first - begin, rows)  # [P]
    is_empty_next = following((num_results == 0) & ~changes(rows), False)
    _, within = spread(num_results)
    most = tf.gather(num_places, part)
    # A further result has no place of its own unless an empty part gives it one.
    is_moved = (within >= most) & (within + 1 == tf.gather(num_results, part))
    is_moved &= tf.gather(is_empty_next, part)
    places = tf.gather(start - not_counted, part) + tf.minimum(within, most - 1)
    return places + tf.cast(is_moved, tf.int32)


_PROPERTIES = (  # the bits of the table "graphemes", see make_unicode_tables.py
    *("joins_any", "joins_leading", "joins_vowel", "joins_trailing", "joins_pictograph"),
    *("joins_consonant", "control", "prepended", "before_leading", "before_vowel"),
    *("before_trailing", "pictograph", "consonant", "extends_pictograph", "extends_consonant"),
    "links_consonants",
)


@functools.cache
def _graphemes():
    return CharacterTable(property_of_all("graphemes"))


def _texts(rows):
    """Where texts start, bool `[C]`, and of each code point the start of its text, int32 `[C]`."""
    starts = changes(rows)
    return starts, tf.gather(tf.cast(tf.where(starts)[:, 0], tf.int32), numbers_of(starts))


def _begins_cluster(codes, text_starts, text_start):
    """Where extended grapheme clusters begin (Unicode Annex 29), and the number of each."""
    # Pairs of a flag's letters are not looked for: no cluster with such a letter is short.
    bits = _graphemes().look_up(codes)
    is_a = {
        name: tf.bitwise.bitwise_and(bits, 1 << bit) > 0 for bit, name in enumerate(_PROPERTIES)
    }

    def follows(name, between):
        """Whether a code point follows one with a property, with only some between; its place."""
        stops = tf.concat([[-1], tf.cast(tf.where(~between)[:, 0], tf.int32)], axis=0)
        place = tf.gather(stops, tf.cumsum(tf.cast(~between, tf.int32), exclusive=True))
        return (place >= text_start) & tf.gather(is_a[name], tf.maximum(place, 0)), place

    vowel, trailing = previous(is_a["before_vowel"]), previous(is_a["before_trailing"])
    joins = is_a["joins_any"] | previous(is_a["prepended"])
    joins |= previous(is_a["before_leading"]) & is_a["joins_leading"]
    joins |= vowel & trailing & is_a["joins_vowel"]
    joins |= ~vowel & trailing & is_a["joins_trailing"]
    follows_pictograph, _ = follows("pictograph", is_a["extends_pictograph"])
    joins |= previous(follows_pictograph & (codes == _JOINER)) & is_a["joins_pictograph"]
    links = is_a["links_consonants"]
    follows_consonant, place = follows("consonant", is_a["extends_consonant"] | links)
    num_links = tf.cumsum(tf.cast(links, tf.int32), exclusive=True)
    is_linked = num_links > tf.gather(num_links, tf.maximum(place, 0))
    joins |= follows_consonant & is_linked & is_a["joins_consonant"]
    joins &= ~is_a["control"] & ~previous(is_a["control"])
    joins |= (codes == ord("\n")) & previous(codes == ord("\r"))
    starts = ~joins | text_starts
    return starts, numbers_of(starts)


class SentencePieceNormalizer(tf.Module):
    """The normalization of a SentencePiece model (Kudo and Richardson 2018, section 3.3)."""

    # From left to right, the longest key at each position becomes its result; user-defined symbols
    # stay. Then runs of spaces are joined, removed at the ends, and written as U+2581 elsewhere.

    def __init__(self, part):
        super().__init__(name="sentencepiece_normalizer")
        text = part["precompiled_charsmap"]
        self._map = _map_of(text) if text else _Map({})
        symbols = {symbol: number for number, symbol in enumerate(part["user_defined_symbols"])}
        self._symbols = Trie(symbols) if symbols else None
        self._removes_spaces = part["remove_extra_whitespaces"]
        self._space = _METASPACE if part["escape_whitespaces"] else _SPACE
        is_suffix = part["treat_whitespace_as_suffix"]
        self._adds_prefix = part["add_dummy_prefix"] and not is_suffix
        self._adds_suffix = part["add_dummy_prefix"] and is_suffix
        self._only_start = part["add_dummy_prefix"] == "first"

    def __call__(self, texts):
        """Normalize `Texts`."""
        (codes, rows), size = texts.codes, texts.size
        is_piece, number = self._pieces(codes, rows)
        num_pieces = tf.math.unsorted_segment_sum(tf.cast(is_piece, tf.int32), rows, size)
        piece = numbers_of(is_piece)
        is_kept = is_piece | tf.gather(tf.boolean_mask(number == _SYMBOL, is_piece), piece)
        codes, rows, number, piece = selected(is_kept, codes, rows, number, piece)
        codes, source = self._map.replaced(codes, number)
        rows, piece = tf.gather(rows, source), tf.gather(piece, source)
        if self._removes_spaces:
            is_kept, is_only_space = _spaces(codes, rows, piece)
            num_pieces -= tf.math.unsorted_segment_sum(tf.cast(is_only_space, tf.int32), rows, size)
            codes, rows = selected(is_kept, codes, rows)
        codes = tf.where(codes == _SPACE, self._space, codes)
        # Nothing is added to an empty text, nor to one of spaces alone if these are removed.
        is_filled = num_pieces > 0
        if self._only_start:
            is_filled &= texts.is_start
        added = tf.RaggedTensor.from_row_lengths(
            tf.fill(tf.math.count_nonzero(is_filled, keepdims=True), self._space),
            tf.cast(is_filled, tf.int64),
        )
        marked = tf.RaggedTensor.from_value_rowids(codes, rows, size)
        if self._adds_prefix:
            marked = tf.concat([added, marked], axis=1)
        if self._removes_spaces:
            codes, rows = marked.values, rows_of(marked.row_lengths())
            place = tf.range(tf.size(codes))
            others = tf.where(codes == self._space, -1, place)
            last = tf.gather(tf.math.unsorted_segment_max(others, rows, size), rows)
            codes, rows = selected(place <= last, codes, rows)
            marked = tf.RaggedTensor.from_value_rowids(codes, rows, size)
        if self._adds_suffix:
            marked = tf.concat([marked, added], axis=1)
        return texts.with_codes(marked.values, rows_of(marked.row_lengths()))

    def _pieces(self, codes, rows):
        """Where the pieces to be replaced begin, and at each the rule, `_SYMBOL` or -1 for none."""
        starts, start = _texts(rows)
        place = tf.range(tf.size(codes))
        end = 1 + tf.gather(tf.math.segment_max(place, start), start)
        length, number = self._map.trie.longest(codes, end, tf.zeros_like(codes))
        number = tf.where(length > 0, number, -1)
        if self._symbols:
            length_of_symbol, _ = self._symbols.longest(codes, end, tf.zeros_like(codes))
            number = tf.where(length_of_symbol > 0, _SYMBOL, number)
            length = tf.where(length_of_symbol > 0, length_of_symbol, length)
        length = tf.maximum(length, 1)
        is_piece = tf.cond(
            tf.reduce_all(length == 1),
            lambda: tf.ones_like(starts),
            lambda: follow(*selected(starts, place, end), length)[0],
        )
        return is_piece, tf.where(is_piece, number, -1)


def _spaces(codes, rows, piece):
    """Which code points are no needless spaces, and which are spaces that are a whole piece."""
    # Needless are those at the start of a text, and at the start of a piece after a space.
    place, is_space = tf.range(tf.size(codes)), codes == _SPACE
    begins = changes(piece)
    after_space = changes(rows) | previous(is_space)
    number = numbers_of(begins)
    first_other = tf.math.segment_min(tf.where(is_space, tf.size(codes), place), number)
    is_removed = place < tf.gather(first_other, number)
    is_removed &= tf.gather(tf.boolean_mask(after_space, begins), number)
    return ~is_removed, is_space & begins & following(begins, True)
