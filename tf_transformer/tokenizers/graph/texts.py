"""Strings, their code points, and words. N texts, C code points, W words of one text."""

import re

import tensorflow as tf


def repair_utf8(strings):
    """Broken bytes become U+FFFD, as in Python's `decode("utf-8", errors="replace")`."""
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")


def to_codes(strings):
    """string `[N]` -> int32 `[C]` code points, int64 `[C]` the text of each."""
    codes = tf.strings.unicode_decode(strings, "UTF-8")
    return codes.values, codes.value_rowids()


def to_strings(codes, rows, num_rows):
    """The inverse of `to_codes`: string `[num_rows]`."""
    texts = tf.RaggedTensor.from_value_rowids(codes, rows, num_rows, validate=False)
    return tf.strings.unicode_encode(texts, "UTF-8")


def starts_where(differs, codes):
    """Marks the first character, and each that `differs` (bool `[C - 1]`) from the one before."""
    return tf.concat([[True], differs], axis=0)[: tf.size(codes)]  # [C]


def words_at(codes, rows, is_new, num_rows):
    """Puts code points together to words.

    Args:
        codes, rows: int32 and int64 `[C]`, code points and the text of each.
        is_new: bool `[C]`, whether a word begins; true at the first of each text.
        num_rows: int64, N.

    Returns:
        ragged string `[N, (W)]`.
    """
    starts = tf.where(is_new)[:, 0]
    splits = tf.concat([starts, [tf.size(codes, tf.int64)]], axis=0)
    words = tf.RaggedTensor.from_row_splits(codes, splits, validate=False)
    return tf.RaggedTensor.from_value_rowids(
        tf.strings.unicode_encode(words, "UTF-8"),
        tf.gather(rows, starts),
        num_rows,
        validate=False,
    )


def literal(text):
    """The regular expression that matches a text and nothing else, for RE2."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)
