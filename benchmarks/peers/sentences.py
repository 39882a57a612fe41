"""Sentences that travel to the peers as one padded array."""


def sentences(ids):
    """The rows of an integer array (B, S) as lists, without the padding 0."""
    return [row[row != 0].tolist() for row in ids]
