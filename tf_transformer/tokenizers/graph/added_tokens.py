"""Added tokens, which are matched first, and the trie that finds them."""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import (
    NUM_CODES,
    CharacterTable,
    Texts,
    characters_of,
    follow,
    lookup_table,
    rows_of,
    selected,
    until_empty,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart, check_spellings


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


class AddedTokens(tf.Module):
    """Cuts texts at added tokens from the left, preferring the longest at each position."""

    def __init__(self, tokens, spellings):
        super().__init__(name="added_tokens")
        check_spellings(tokens, spellings)
        if "" in spellings:
            nothing = tokens[spellings.index("")].content
            raise UnsupportedPart.of("added_tokens", "something after normalization", nothing)
        self._trie = Trie({spelling: number for number, spelling in enumerate(spellings)})
        self._ids = np.array([token.id for token in tokens], np.int32)
        self._is_special = np.array([token.special for token in tokens])
        self._is_word = np.array([token.single_word for token in tokens])
        self._strips_before = np.array([token.lstrip for token in tokens], np.int32)
        self._strips_after = np.array([token.rstrip for token in tokens], np.int32)
        self._letters = CharacterTable(characters_of("word"))
        self._spaces = CharacterTable(characters_of("white_space"))

    def __call__(self, texts, rows, after, parses_special):
        """Cut texts, which may be pieces of longer ones, at special tokens too or not (bool)."""
        if not self._is_special.all():
            return self._cut(texts, rows, after, parses_special)

        # Most files have special tokens only, and most texts are not searched for them.
        def cut():
            pieces, *others = self._cut(texts, rows, after, True)
            return pieces.strings, *others

        kept = texts.strings, rows, after
        strings, rows, after = tf.cond(parses_special, cut, lambda: kept)
        return Texts.of(strings, is_valid=True), rows, after

    def _cut(self, texts, rows, after, parses_special):
        codes, owner = texts.codes  # [C]
        owner, size = tf.cast(owner, tf.int32), tf.cast(texts.size, tf.int32)
        text_end = tf.cumsum(tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, size))
        text_start = tf.concat([[0], text_end], axis=0)[:-1]  # [N]
        place, stop, number = self._found(codes, owner, text_start, text_end)
        # No other token may overlap a special token, even if it is not cut out.
        kept = parses_special | ~tf.gather(self._is_special, number)
        if self._is_word.any():
            text = tf.gather(owner, place)
            is_letter = tf.cast(self._letters.look_up(codes), tf.bool)
            is_letter = tf.concat([[False], is_letter, [False]], axis=0)  # of C - 1 to C + 1
            joins_left = tf.gather(is_letter, place) & (place > tf.gather(text_start, text))
            joins_right = tf.gather(is_letter, stop + 1) & (stop < tf.gather(text_end, text))
            kept &= ~(tf.gather(self._is_word, number) & (joins_left | joins_right))
        place, stop, number = selected(kept, place, stop, number)
        # In each text there is a piece before every token, and one more at the end.
        text = tf.gather(owner, place)
        count = 1 + tf.math.unsorted_segment_sum(tf.ones_like(text), text, size)  # [N]
        last = tf.cumsum(count) - 1
        before = tf.range(tf.size(place)) + text  # [M], the piece before each token
        num_pieces = tf.reduce_sum(count)

        def in_pieces(where, values):
            return tf.scatter_nd(where[:, tf.newaxis], values, [num_pieces])

        ends = tf.concat([last, before], axis=0)
        starts = tf.concat([last - count + 1, before + 1], axis=0)
        piece_start = in_pieces(starts, tf.concat([text_start, stop], axis=0))
        piece_end = in_pieces(ends, tf.concat([text_end, place], axis=0))
        next_id = in_pieces(ends, tf.concat([after, tf.gather(self._ids, number)], axis=0))
        places = tf.ragged.range(piece_start, piece_end)
        codes, piece = tf.gather(codes, places.values), rows_of(places.row_lengths())
        if self._strips_before.any() or self._strips_after.any():
            strips_end = in_pieces(before, tf.gather(self._strips_before, number))
            strips_start = in_pieces(before + 1, tf.gather(self._strips_after, number))
            kept = self._not_stripped(codes, piece, strips_start > 0, strips_end > 0)
            codes, piece = selected(kept, codes, piece)
        pieces = Texts(tf.cast(num_pieces, tf.int64), codes=codes, rows=piece)
        return pieces, tf.gather(rows, rows_of(count)), next_id

    def _found(self, codes, owner, text_start, text_end):
        """Return the start, end and number of the tokens from left to right, int32 `[M]` each."""
        end = tf.gather(text_end, owner)
        length_at, number_at = self._trie.longest(codes, end, tf.zeros_like(codes))
        place = tf.cast(tf.where(length_at > 0)[:, 0], tf.int32)
        stop = place + tf.gather(length_at, place)
        # How many may begin before each position: where the first that begins there stands.
        rank = tf.concat([[0], tf.cumsum(tf.cast(length_at > 0, tf.int32))], axis=0)  # [C + 1]
        start, goal = tf.gather(rank, text_start), tf.gather(rank, text_end)
        jumps = tf.gather(rank, stop) - tf.range(tf.size(place))
        is_found, _ = follow(*selected(start < goal, start, goal), jumps)
        place, stop = selected(is_found, place, stop)
        return place, stop, tf.gather(number_at, place)

    def _not_stripped(self, codes, piece, strips_start, strips_end):
        """bool `[C]`, without the white space at those starts and ends (bool `[P]`) of pieces."""
        place = tf.range(tf.size(codes))
        is_space = tf.cast(self._spaces.look_up(codes), tf.bool)
        # Of each piece, the first and the last place that is not white space.
        size, num_pieces = tf.size(codes), tf.size(strips_end)
        first = tf.math.unsorted_segment_min(tf.where(is_space, size, place), piece, num_pieces)
        last = tf.math.unsorted_segment_max(tf.where(is_space, -1, place), piece, num_pieces)
        first, last = tf.gather(first, piece), tf.gather(last, piece)
        at_start = (place < first) & tf.gather(strips_start, piece)
        at_end = (place > last) & tf.gather(strips_end, piece)
        return ~(at_start | at_end)
