"""The symbols that a model starts from: characters or bytes."""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.characters import NUM_CODES, CharacterTable
from tf_transformer.tokenizers.graph.texts import bytes_of_words, starts_where, words_of_characters
from tf_transformer.tokenizers.pipeline import byte_alphabet
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart


def first_of_unknown(is_unknown, owner):
    """Drop all but the first of adjacent unknown symbols in a word."""
    continues = is_unknown[1:] & is_unknown[:-1] & (owner[1:] == owner[:-1])
    return starts_where(~continues, owner)


def ids_of_bytes(vocabulary):
    """Find the tokens `<0x00>` to `<0xFF>`."""
    if not isinstance(vocabulary, dict):
        vocabulary = {token: number for number, token in enumerate(vocabulary)}
    ids = [vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)]
    if not any(number is not None for number in ids):
        return None
    if None in ids:
        missing = [f"<0x{byte:02X}>" for byte, number in enumerate(ids) if number is None]
        raise UnsupportedPart.of(
            "model.byte_fallback", "a token for each byte", f"no {missing[:5]}"
        )
    return np.array(ids, np.int32)


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


class CharacterSymbols:
    """Turns words into the ids of their characters.

    A character that the vocabulary lacks becomes its bytes, becomes the unknown token, or is
    dropped, as the model says.
    """

    def __init__(self, model):
        prefix = model.get("continuing_subword_prefix") or ""
        suffix = model.get("end_of_word_suffix") or ""
        vocabulary = model["vocab"]
        # One table for each position in a word: inside, last, first, first and last.
        self._id_of_character = [
            CharacterTable(_ids_of_characters(vocabulary, before, after))
            for before in (prefix, "")
            for after in ("", suffix)
        ]
        unknown = model.get("unk_token")
        self._unknown = -1 if unknown is None else vocabulary.get(unknown)
        if self._unknown is None:
            raise UnsupportedPart.of("model.unk_token", "a token of the vocabulary", unknown)
        self._fuses_unknown = model.get("fuse_unk", False)
        self._id_of_byte = ids_of_bytes(vocabulary) if model.get("byte_fallback") else None
        if self._id_of_byte is not None and (prefix or suffix):
            raise UnsupportedPart.of("model.byte_fallback", "no prefix or suffix", True)

    def __call__(self, words):
        """string `[W]` -> int32 `[N]`, the id of each symbol, and int32 `[N]`, its word."""
        codes, owner, start, end = words_of_characters(words)
        place = tf.range(tf.size(codes))
        is_first = place == tf.gather(start, owner)
        is_last = place + 1 == tf.gather(end, owner)
        kind = 2 * tf.cast(is_first, tf.int32) + tf.cast(is_last, tf.int32)
        symbols = tf.stack([table.look_up(codes) for table in self._id_of_character], axis=1)
        symbols = tf.gather(symbols, kind, batch_dims=1)  # [C], -1 where unknown
        replace = self._to_bytes if self._id_of_byte is not None else self._to_unknown
        return tf.cond(
            tf.reduce_all(symbols >= 0),
            lambda: (symbols, owner),
            lambda: replace(codes, symbols, owner),
        )

    def _to_bytes(self, codes, symbols, owner):
        letters = tf.strings.unicode_encode(codes[:, tf.newaxis], "UTF-8")
        values, source = bytes_of_words(letters)
        symbols = tf.gather(symbols, source)
        # A known character is one symbol; it stays at the position of its first byte.
        kept = (symbols < 0) | starts_where(source[1:] != source[:-1], source)
        symbols = tf.where(symbols < 0, tf.gather(self._id_of_byte, values), symbols)
        return tf.boolean_mask(symbols, kept), tf.boolean_mask(tf.gather(owner, source), kept)

    def _to_unknown(self, codes, symbols, owner):
        is_unknown = symbols < 0
        if self._unknown < 0:
            kept = ~is_unknown  # the reference drops such characters
        elif self._fuses_unknown:
            kept = first_of_unknown(is_unknown, owner)
        else:
            kept = tf.ones_like(is_unknown)
        symbols = tf.where(is_unknown, self._unknown, symbols)
        return tf.boolean_mask(symbols, kept), tf.boolean_mask(owner, kept)


def _ids_of_characters(vocabulary, prefix, suffix):
    """int32 `[0x110000]`, the id of each character with prefix and suffix; -1 if there is none."""
    ids = np.full(NUM_CODES, -1, np.int32)
    for token, number in vocabulary.items():
        if token.startswith(prefix) and token.endswith(suffix):
            character = token[len(prefix) : len(token) - len(suffix)]
            if len(character) == 1:
                ids[ord(character)] = number
    return ids
