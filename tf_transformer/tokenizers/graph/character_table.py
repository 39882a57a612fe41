"""A number for every code point, looked up in a graph. C code points."""

import numpy as np
import tensorflow as tf

_PAGE = 256


class CharacterTable:
    """One number for each code point, stored in pages; identical pages are stored once."""

    def __init__(self, values):
        numbers = {}  # of distinct pages
        starts = []
        for page in np.asarray(values, np.int32).reshape(-1, _PAGE):
            starts.append(numbers.setdefault(page.tobytes(), len(numbers)) * _PAGE)
        self._values = np.frombuffer(b"".join(numbers), np.int32)
        self._start_of_page = np.array(starts, np.int32)

    def look_up(self, codes):
        """int32 `[C]` -> int32 `[C]`."""
        start = tf.gather(self._start_of_page, tf.bitwise.right_shift(codes, 8))
        return tf.gather(self._values, start + tf.bitwise.bitwise_and(codes, _PAGE - 1))
