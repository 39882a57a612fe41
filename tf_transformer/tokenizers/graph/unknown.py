"""Handling of unknown characters shared by BPE and Unigram. M symbols."""

from tf_transformer.tokenizers.graph.texts import starts_where


def first_of_unknown(is_unknown, owner):
    """Drop all but the first of adjacent unknown symbols in a word."""
    continues = is_unknown[1:] & is_unknown[:-1] & (owner[1:] == owner[:-1])
    return starts_where(~continues, owner)
