"""Encoding and searching many lines, with bounded memory.

Axes: B batch, D width of a vector.
"""

import itertools
import shutil
import tempfile

import numpy as np

from tf_transformer.errors import ArgumentError


def embed_lines(encode, lines, batch_size=64, lines_at_once=4096):
    """Encode lines in order, one part at a time.

    A part is sorted by length before it is divided into batches, which keeps padding small.

    Args:
        encode: function of a list of B str or bytes to floats (B, D): `TextEncoder.encode`, also
            of a SavedModel.
        lines: iterable of str or bytes (UTF-8), read as needed.
        batch_size: int, maximum number of lines encoded together.
        lines_at_once: int, maximum number of lines held in memory.

    Yields:
        float32 arrays (lines of the part, D).

    Raises:
        ValueError: If `batch_size` or `lines_at_once` is below 1.

    Example:
        >>> encode = lambda texts: tf.cast(tf.strings.length(texts), tf.float32)[:, None]
        >>> [part.ravel().tolist() for part in embed_lines(encode, ["abc", "d", "ef"], 2, 2)]
        [[3.0, 1.0], [2.0]]
    """
    for name, value in (("batch_size", batch_size), ("lines_at_once", lines_at_once)):
        if value < 1:
            raise ArgumentError(name, "at least 1", value)
    lines = iter(lines)
    while part := list(itertools.islice(lines, lines_at_once)):
        order = np.argsort([len(line) for line in part], kind="stable")
        vectors = None
        for start in range(0, len(part), batch_size):
            rows = order[start : start + batch_size]
            batch = np.asarray(encode([part[row] for row in rows]))
            if vectors is None:
                vectors = np.empty((len(part), batch.shape[1]), np.float32)
            vectors[rows] = batch
        yield vectors


def write_vectors(stream, parts, width, dtype="<f4"):
    """Write one `.npy` file from parts whose total number of rows is not known in advance.

    The data are collected in a temporary file, since the file header holds the number of rows.

    Args:
        stream: binary file, possibly a pipe.
        parts: iterable of arrays (rows, D).
        width: int, D.
        dtype: of the file.

    Returns:
        int, the number of rows.

    Example:
        >>> import io
        >>> stream = io.BytesIO()
        >>> write_vectors(stream, [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)], 3)
        3
        >>> np.load(io.BytesIO(stream.getvalue())).sum()
        np.float32(6.0)
    """
    rows = 0
    with tempfile.TemporaryFile() as body:
        for part in parts:
            body.write(np.ascontiguousarray(part, dtype).tobytes())
            rows += len(part)
        descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
        header = {"descr": descr, "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(stream, header)
        body.seek(0)
        shutil.copyfileobj(body, stream)
    return rows


def nearest(index, vectors, top, rows_at_once=65536, scales=None):
    """Find the rows of an index with the largest dot product with each vector.

    For vectors of length 1 the dot product is the cosine similarity.

    Args:
        index: array (rows, D), may be memory-mapped; it is read in parts.
        vectors: float array (B, D).
        top: int, number of results, at most the rows of the index.
        rows_at_once: int, rows of the index compared at once.
        scales: None, or float array (rows,), what each row is multiplied by.

    Returns:
        `(scores, rows)`: float32 and int64 arrays (B, top), best first, ties in order of
        rows.

    Raises:
        ValueError: If index and vectors differ in width, or `top` is below 1.

    Example:
        >>> index = np.eye(3, dtype=np.float32)
        >>> nearest(index, index[1:2] * 0.5, top=2)[1].tolist()
        [[1, 0]]
    """
    check_search(vectors, index.shape[1] if index.ndim == 2 else index.shape, top)
    scores = np.empty((len(vectors), 0), np.float32)
    rows = np.empty((len(vectors), 0), np.int64)
    for start in range(0, len(index), rows_at_once):
        part = vectors @ np.asarray(index[start : start + rows_at_once], np.float32).T
        if scales is not None:
            part *= scales[start : start + rows_at_once]
        scores = np.concatenate([scores, part], 1)
        numbers = np.arange(start, start + part.shape[1])
        rows = np.concatenate([rows, np.broadcast_to(numbers, part.shape)], 1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        scores, rows = (np.take_along_axis(x, best, 1) for x in (scores, rows))
    return scores, rows


def check_search(vectors, width, top):
    """Check the arguments of a search."""
    if vectors.shape[1] != width:
        raise ArgumentError(
            "index",
            f"vectors of width {vectors.shape[1]}, as the model produces",
            width,
            "Build the index with the same model.",
        )
    if top < 1:
        raise ArgumentError("top", "at least 1", top)
