r"""GPT-2's word splitting without its regular expression. C code points, W words of one text.

The pattern needs a look-ahead, which RE2 does not support:
`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
(Radford et al. 2019, the authors' encoder.py). Instead, the characters around each character
determine whether a word begins there.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.character_table import CharacterTable
from tf_transformer.tokenizers.graph.characters import NUM_CODES, characters_of
from tf_transformer.tokenizers.graph.texts import starts_where, words_at

_OTHER, _LETTER, _NUMBER, _SPACE = range(4)

_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")


class GPT2Words:
    """Splits texts as GPT-2 does, into words that include the space before them."""

    def __init__(self):
        kinds = np.full(NUM_CODES, _OTHER)
        kinds[characters_of("letter")] = _LETTER
        kinds[characters_of("number")] = _NUMBER
        kinds[characters_of("regex_space")] = _SPACE
        self._kinds = CharacterTable(kinds)

    def __call__(self, texts):
        """`Texts` of N -> ragged string `[N, (W)]`; no character is dropped."""
        codes, rows = texts.codes
        return words_at(codes, rows, self._is_new(codes, rows), texts.size)

    def _is_new(self, codes, rows):
        kinds = self._kinds.look_up(codes)
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
        length = self._ending_lengths(codes, is_first)  # letters of the ending after each code
        takes = is_new & (codes == ord("'")) & (length > 0)
        one, two = _previous(takes, 1), _previous(takes & (length == 2), 2)
        after_one = _previous(takes & (length == 1), 2)
        after_two = _previous(takes & (length == 2), 3)
        return is_first | (is_new & ~one & ~two) | after_one | after_two

    @staticmethod
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
