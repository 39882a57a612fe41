"""Batches and results of the translation benchmark, the same for every peer."""

import numpy as np


def batches(case, arrays):
    """The sources (N, S), split into arrays as wide as their longest row."""
    parts = np.split(arrays["source"], range(case["batch"], len(arrays["source"]), case["batch"]))
    return [part[:, : (part != 0).sum(1).max()] for part in parts]


def in_bucket(batch, rows):
    """A batch padded as `IdTranslator` pads for XLA, for peers that compile each shape."""
    length = max(8, 1 << (batch.shape[1] - 1).bit_length())
    return np.pad(batch, ((0, rows - len(batch)), (0, length - batch.shape[1])))


def limit(length):
    """Maximum length of a translation, same as in `IdTranslator`."""
    return 2 * length + 10


def padded(rows, end_id=None):
    """Lists of ids as an array (B, L), cut before their end token."""
    rows = [list(row) for row in rows]
    rows = [row[: row.index(end_id)] if end_id in row else row for row in rows]
    width = max(map(len, rows))
    return np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
