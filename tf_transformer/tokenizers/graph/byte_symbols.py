"""The bytes of words, with which byte-level BPE starts. W words, N bytes of all those words."""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import bytes_of_words
from tf_transformer.tokenizers.pipeline import byte_alphabet
from tf_transformer.tokenizers.unsupported_part import UnsupportedPart

_BYTE_OF_LETTER = {letter: byte for byte, letter in enumerate(byte_alphabet())}


class ByteSymbols:
    """Turns words into the ids of their bytes."""

    def __init__(self, model):
        for part in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(part):
                raise UnsupportedPart.of(f"model.{part}", "none with ByteLevel", model[part])
        ids = [model["vocab"].get(letter) for letter in _BYTE_OF_LETTER]
        missing = [byte for byte, number in enumerate(ids) if number is None]
        if missing:
            got = f"none for the bytes {missing}"
            raise UnsupportedPart.of("model.vocab", "all 256 bytes", got)
        self._id_of_byte = np.array(ids, np.int32)

    def __call__(self, words):
        """string `[W]` -> int32 `[N]`, the id of each byte, and int32 `[N]`, its word."""
        values, owner = bytes_of_words(words)
        return tf.gather(self._id_of_byte, values), owner


def bytes_of_letters(text):
    """Return the bytes that a token of a byte-level vocabulary stands for."""
    if not _BYTE_OF_LETTER.keys() >= set(text):
        return None
    return bytes(map(_BYTE_OF_LETTER.get, text))
