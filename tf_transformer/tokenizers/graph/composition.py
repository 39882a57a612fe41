"""Unicode's canonical composition, the last step of NFC and NFKC. C code points, S spans."""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.character_table import CharacterTable
from tf_transformer.tokenizers.graph.characters import NUM_CODES, combining_classes, compositions
from tf_transformer.tokenizers.graph.texts import starts_where

_REMOVED = -1


class Composition:
    """Combines a letter with the marks that follow it if a composed character exists.

    Unicode Standard Annex 15, section 1.3. The standard processes a text character by character.
    Here a text is split before every character that can never combine with the preceding one, and
    the resulting spans, mostly a letter with its marks, are processed in parallel.
    """

    def __init__(self):
        first, second, composed = compositions().T.astype(np.int64)
        pairs = first * NUM_CODES + second
        order = np.argsort(pairs)
        self._pairs, self._composed = pairs[order], composed[order].astype(np.int32)
        self._classes = CharacterTable(combining_classes())
        self._is_second = CharacterTable(np.isin(np.arange(NUM_CODES), second))

    def __call__(self, codes, rows):
        """int32 `[C]` decomposed and in canonical order, int64 `[C]` -> the same, composed."""
        is_second = tf.cast(self._is_second.look_up(codes), tf.bool)
        return tf.cond(
            tf.reduce_any(is_second),
            lambda: self._compose(codes, rows, is_second),
            lambda: (codes, rows),
        )

    def _compose(self, codes, rows, is_second):
        classes = self._classes.look_up(codes)
        is_new_row = starts_where(rows[1:] != rows[:-1], codes)
        place = tf.cast(tf.where(is_new_row | ((classes == 0) & ~is_second))[:, 0], tf.int32)
        end = tf.concat([place[1:], [tf.size(codes)]], axis=0)
        none = tf.fill(tf.shape(place), -1)
        state = (codes, place, end, none, none, none)
        shapes = [tf.TensorShape([None])] * len(state)
        codes, *_ = tf.while_loop(
            lambda codes, place, *_: tf.size(place) > 0,
            lambda *state: self._take_next(classes, *state),
            state,
            shape_invariants=tuple(shapes),
        )
        is_kept = codes != _REMOVED
        return tf.boolean_mask(codes, is_kept), tf.boolean_mask(rows, is_kept)

    def _take_next(self, classes, codes, place, end, starter, starter_code, last):
        """Process one character of each span."""
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
        open_spans = place < end
        state = (place, end, starter, starter_code, last)
        return codes, *(tf.boolean_mask(part, open_spans) for part in state)
