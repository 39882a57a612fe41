"""Strings, their code points, and words. N texts, C code points, W words of one text."""

import re

import tensorflow as tf


def repair_utf8(strings):
    r"""Broken bytes become U+FFFD, as in Python's `decode("utf-8", errors="replace")`.

    Example:
        >>> repair_utf8(tf.constant([b"a\xff"])).numpy()[0].decode()
        'a�'
    """
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")


def to_codes(strings):
    """string `[N]` -> int32 `[C]` code points, int64 `[C]` the text of each.

    Example:
        >>> codes, rows = to_codes(tf.constant(["ab", "我"]))
        >>> codes.numpy().tolist(), rows.numpy().tolist()
        ([97, 98, 25105], [0, 0, 1])
    """
    codes = tf.strings.unicode_decode(strings, "UTF-8")
    return codes.values, codes.value_rowids()


def to_strings(codes, rows, num_rows):
    """The inverse of `to_codes`: string `[num_rows]`.

    Example:
        >>> to_strings(tf.constant([97, 98]), tf.constant([0, 2], tf.int64), 3).numpy().tolist()
        [b'a', b'', b'b']
    """
    texts = tf.RaggedTensor.from_value_rowids(codes, rows, num_rows, validate=False)
    return tf.strings.unicode_encode(texts, "UTF-8")


def starts_where(differs, codes):
    """Marks the first character, and each that `differs` (bool `[C - 1]`) from the one before.

    Example:
        >>> codes = tf.constant([5, 5, 7])
        >>> starts_where(codes[1:] != codes[:-1], codes).numpy().tolist()
        [True, False, True]
    """
    return tf.concat([[True], differs], axis=0)[: tf.size(codes)]  # [C]


def words_at(codes, rows, is_new, num_rows):
    """Puts code points together to words.

    Args:
        codes, rows: int32 and int64 `[C]`, code points and the text of each.
        is_new: bool `[C]`, whether a word begins; true at the first of each text.
        num_rows: int64, N.

    Returns:
        ragged string `[N, (W)]`.

    Example:
        >>> codes, rows = to_codes(tf.constant(["abc"]))
        >>> words_at(codes, rows, tf.constant([True, False, True]), 1).to_list()
        [[b'ab', b'c']]
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
    r"""The regular expression that matches a text and nothing else, for RE2.

    Example:
        >>> print(literal("a.b"))
        a\.b
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)
