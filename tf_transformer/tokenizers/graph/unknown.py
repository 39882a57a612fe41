"""Handling of unknown characters shared by BPE and Unigram. M symbols."""

from tf_transformer.tokenizers.graph.texts import starts_where


def first_of_unknown(is_unknown, owner):
    """Drop all but the first of adjacent unknown symbols in a word.

    Args:
        is_unknown: bool `[M]`.
        owner: integer `[M]`, the word of each.

    Returns:
        bool `[M]`, the symbols to keep.

    Example:
        >>> is_unknown = tf.constant([True, True, False, True, True])
        >>> first_of_unknown(is_unknown, tf.constant([0, 0, 0, 0, 1])).numpy().tolist()
        [True, False, True, True, True]
    """
    continues = is_unknown[1:] & is_unknown[:-1] & (owner[1:] == owner[:-1])
    return starts_where(~continues, owner)
