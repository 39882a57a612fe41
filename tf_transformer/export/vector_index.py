"""Encoding many texts, storing their vectors, and exact or approximate search.

Axes: N texts, B queries, D width of a vector.
"""

import itertools
import shutil
import tempfile
from pathlib import Path

import numpy as np

from tf_transformer import __version__
from tf_transformer.data.files import check_replaceable, map_array, replacing, write_json
from tf_transformer.errors import (
    ArgumentError,
    MissingFileError,
    MissingPackage,
    check,
    check_choice,
    check_texts,
)
from tf_transformer.json_text import parse_json


def embed_lines(encode, lines, batch_size=64, lines_at_once=4096):
    """Encode lines in order, one part at a time, in batches of similar length.

    Args:
        encode: function from a list of B str or bytes to floats (B, D), like `TextEncoder.encode`.
        lines: iterable of str or bytes (UTF-8), read as needed.
        batch_size, lines_at_once: int, maximum lines encoded together, and held in memory.

    Yields:
        float32 arrays (lines of the part, D).

    Raises:
        ValueError: If `batch_size` or `lines_at_once` is below 1, or `lines` is one string.

    Example:
        >>> encode = lambda texts: np.array([[len(text)] for text in texts])
        >>> [part.ravel().tolist() for part in embed_lines(encode, ["abc", "d", "ef"], 2, 2)]
        [[3.0, 1.0], [2.0]]
    """
    for name, value in (("batch_size", batch_size), ("lines_at_once", lines_at_once)):
        check(value >= 1, name, "at least 1", value)
    check_texts("lines", lines)
    lines = iter(lines)
    while part := list(itertools.islice(lines, lines_at_once)):
        order = np.argsort([len(line) for line in part], kind="stable")
        vectors = []
        for start in range(0, len(part), batch_size):
            vectors.append(encode([part[row] for row in order[start : start + batch_size]]))
        yield np.concatenate(vectors).astype(np.float32)[np.argsort(order)]


def write_vectors(stream, parts, width, dtype="<f4"):
    """Write one `.npy` file from parts whose total number of rows is not known in advance.

    Args:
        stream: binary file, possibly a pipe.
        parts: iterable of arrays (rows, D).
        width, dtype: D, and the dtype of the file.

    Returns:
        int, the number of rows.

    Example:
        >>> with open("vectors.npy", "wb") as file:
        ...     write_vectors(file, [np.ones((2, 3)), np.zeros((1, 3))], 3)
        3
    """
    rows = 0
    with tempfile.TemporaryFile() as body:  # the header before it contains the number of rows
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

    For vectors of length 1, the dot product is the cosine similarity.

    Args:
        index: array (rows, D), possibly memory-mapped; it is read in parts.
        vectors: float array (B, D).
        top, rows_at_once: int, number of results (at most all rows), and rows compared at once.
        scales: None, or float array (rows,), the factor of each row.

    Returns:
        `(scores, rows)`: float32 and int64 arrays (B, top), best first, ties in order of rows.

    Raises:
        ValueError: If index and vectors differ in width, or `top` is below 1.

    Example:
        >>> index = np.eye(3, dtype=np.float32)
        >>> nearest(index, index[1:2] * 0.5, top=2)[1].tolist()
        [[1, 0]]
    """
    check_search(vectors, index.shape[1] if index.ndim == 2 else index.shape, top)
    scores, rows = np.empty((len(vectors), 0), np.float32), np.empty((len(vectors), 0), np.int64)
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


def check_search(vectors, width, top=1):
    """Check the arguments of a search."""
    check(vectors.ndim == 2, "vectors", "an array (B, D)", f"shape {vectors.shape}")
    expected = f"vectors of width {vectors.shape[1]}, as the model produces"
    remedy = "Build the index with the same model."
    check(vectors.shape[1] == width, "index", expected, width, remedy)
    check(top >= 1, "top", "at least 1", top)


APPROXIMATE = ("pq", "hnsw")
TRAINING = 65536  # vectors that determine the centroids of "pq"
CENTROIDS = 256


def import_faiss():
    """Return faiss, or raise ImportError with the command to install it."""
    try:
        import faiss
    except ImportError as error:
        raise MissingPackage('faiss-cpu is not installed: pip install -e ".[search]"') from error
    return faiss


def read_approximate(path, kind, rows, width):
    """Read an index of faiss, which must have `rows` vectors of this width."""
    faiss = import_faiss()
    if not path.is_file():
        raise MissingFileError("index", f"the file {path}", "none")
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        damage = f"{path}, which is damaged: {error}"
        raise ArgumentError("index", "a file of faiss", damage) from error
    wanted = {"pq": faiss.IndexPQ, "hnsw": faiss.IndexHNSWFlat}[kind]
    if type(index) is not wanted or (index.ntotal, index.d) != (rows, width):
        expected = f"{rows} vectors of width {width} for {kind} in {path}"
        got = f"{index.ntotal} of width {index.d} for {type(index).__name__}"
        raise ArgumentError("index", expected, got)
    return index


def approximate_index(kind, parts, width):
    """Create an index of faiss: iterable of float32 (rows, D), trained on the first vectors."""
    faiss = import_faiss()
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 200, 128
    else:
        groups = max(n for n in range(1, max(width // 4, 1) + 1) if width % n == 0)
        index = faiss.IndexPQ(width, groups, 8, faiss.METRIC_INNER_PRODUCT)
        parts, first = iter(parts), []
        while sum(map(len, first)) < TRAINING and (part := next(parts, None)) is not None:
            first.append(part)
        seen = np.concatenate([np.empty((0, width), np.float32), *first])[:TRAINING]
        expected = f"at least {CENTROIDS} vectors for pq"
        check(len(seen) >= CENTROIDS, "dtype", expected, len(seen), "Use int8.")
        index.pq.cp.min_points_per_centroid = 1  # avoids a warning by faiss
        index.train(seen)
        parts = itertools.chain(first, parts)
    for part in parts:
        index.add(np.ascontiguousarray(part, np.float32))
    return index


DTYPES = ("float32", "float16", "int8", *APPROXIMATE)
DESCRIPTION = "vector_index.json"
# Texts whose stored vectors identify the model, even in fewer bits or trained a little further.
PROBES = ("A man is eating a piece of bread.", "市场昨天下跌。", "42")
CLOSE = 0.9  # cosine; at least 0.98 in 8 bits or after one more epoch of training


class VectorIndex:
    """Stored vectors that can be searched.

    Exact search is one matrix product over memory-mapped vectors; "pq" and "hnsw" use faiss.

    Args:
        folder: str or Path, from `write_index`.

    Attributes:
        rows, width: int, N and D.

    Raises:
        FileNotFoundError: If the folder has no index; ValueError for a damaged file.
        ImportError: If it needs faiss, and faiss is not installed.

    Example:
        >>> encode = lambda texts: np.array([[len(t), 1.0] for t in texts], np.float32)
        >>> _ = write_index("my-index", [np.eye(2, dtype=np.float32)], encode)
        >>> VectorIndex("my-index").search(np.array([[0.2, 0.9]]), top=1)[1].tolist()
        [[1]]
    """

    def __init__(self, folder):
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            expected = f"a folder with {DESCRIPTION}, from `embed --index`"
            raise MissingFileError("index", expected, folder)
        self.rows, self.width, self.dtype = _facts(folder / DESCRIPTION)
        self._probes = _array(folder / "probes.npy", (len(PROBES), self.width))
        self._scales = None
        if self.dtype in APPROXIMATE:
            file = folder / "vectors.faiss"
            self._approximate = read_approximate(file, self.dtype, self.rows, self.width)
        else:
            self._vectors = _array(folder / "vectors.npy", (self.rows, self.width), self.dtype)
            if self.dtype == "int8":
                self._scales = _array(folder / "scales.npy", (self.rows,))

    def check_model(self, encode):
        """Raise ValueError if `encode`, list of strings -> float array (B, D), is another model."""
        vectors = np.asarray(encode(list(PROBES)))
        check_search(vectors, self.width)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(self._probes, axis=1)
        cosine = ((vectors * self._probes).sum(1) / np.maximum(lengths, 1e-30)).min()
        expected = "one that this model made, with the same pooling"
        got = f"one of another model: the cosine of a text's vectors is {cosine:.2f}"
        check(cosine >= CLOSE, "index", expected, got, "Build the index with the same model.")

    def search(self, vectors, top):
        """Like `nearest`; "hnsw" may find fewer than `top`, the last rows are then -1."""
        vectors = np.asarray(vectors, np.float32)
        check_search(vectors, self.width, top)
        if self.dtype not in APPROXIMATE:
            return nearest(self._vectors, vectors, top, scales=self._scales)
        top = min(top, self.rows)
        if not top:
            return np.empty((len(vectors), 0), np.float32), np.empty((len(vectors), 0), np.int64)
        return self._approximate.search(np.ascontiguousarray(vectors), top)


def _facts(path):
    """Return `rows`, `width` and `dtype` of a description."""
    try:
        description = parse_json(path.read_bytes())
        rows, width, dtype = (description[name] for name in ("rows", "width", "dtype"))
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError("index", f"a description in {path}", f"{error!r}") from error
    if not (type(rows) is type(width) is int and rows >= 0 < width and dtype in DTYPES):
        expected = f"numbers of rows and columns, and a dtype of {', '.join(DTYPES)}, in {path}"
        raise ArgumentError("index", expected, f"{rows!r}, {width!r} and {dtype!r}")
    return rows, width, dtype


def _array(path, shape, dtype="float32"):
    """Map an array of the index into memory."""
    array = map_array(path)
    if array.shape != shape or array.dtype != dtype:
        expected = f"{dtype} of shape {shape} in {path}, as the description says"
        got = f"{array.dtype} of shape {array.shape}"
        raise ArgumentError("index", expected, got, "Build the index again.")
    return array


def write_index(folder, parts, encode, dtype="float32"):
    """Write an index of vectors.

    Args:
        folder: str or Path; an index there is replaced at the end.
        parts: iterable of float32 arrays (rows, D), such as from `embed_lines`.
        encode: function, list of strings -> float array (B, D), the model that made the vectors;
            the index stores its vectors of a few texts, see `VectorIndex.check_model`.
        dtype: "float32"; "float16"; "int8", with one range per vector; or, with faiss, "pq" or
            "hnsw". "pq", product quantization (Jégou et al. 2011), stores a sixteenth of float32 if
            the width allows, and compares all vectors. "hnsw", a graph of neighbors (Malkov and
            Yashunin 2018), stores float32 and links, and compares few. Both are kept in memory.

    Returns:
        dict: `rows`, `width`, `dtype`.

    Raises:
        FileExistsError: If the folder has other content.
        ImportError: If faiss is needed and not installed.
        ValueError: If the dtype is unknown, there are too few vectors for it, they are not finite
            in it, or their width differs from the output of `encode`.

    Example:
        >>> encode = lambda texts: np.array([[len(t), 1.0] for t in texts], np.float32)
        >>> write_index("my-index", [np.eye(2, dtype=np.float32)], encode, "int8")
        {'rows': 2, 'width': 2, 'dtype': 'int8'}
    """
    check_choice("dtype", dtype, DTYPES)
    check_replaceable(folder, only_with=DESCRIPTION)
    if dtype in APPROXIMATE:
        import_faiss()  # before the texts are encoded
    probes = np.asarray(encode(list(PROBES)), np.float32)
    width = probes.shape[1]
    parts = _checked(parts, width, "float16" if dtype == "float16" else "float32")
    with replacing(folder, only_with=DESCRIPTION) as beside:
        beside.mkdir()
        np.save(beside / "probes.npy", probes)
        if dtype in APPROXIMATE:
            index = approximate_index(dtype, parts, width)
            rows = index.ntotal
            import_faiss().write_index(index, str(beside / "vectors.faiss"))
        else:
            scales = []
            if dtype == "int8":
                parts = _to_int8(parts, scales)
            with open(beside / "vectors.npy", "wb") as file:
                rows = write_vectors(file, parts, width, np.dtype(dtype).newbyteorder("<"))
            if dtype == "int8":
                np.save(beside / "scales.npy", np.concatenate([np.empty(0, np.float32), *scales]))
        facts = {"rows": rows, "width": width, "dtype": dtype}
        write_json(beside / DESCRIPTION, {"version": __version__, **facts})
    return facts


def _checked(parts, width, dtype):
    expected = f"vectors of width {width}, as encode gives"
    for part in parts:
        check(part.shape[1:] == (width,), "parts", expected, f"shape {part.shape}")
        most = np.abs(part).max(initial=0)  # NaN if there is any
        check(most <= np.finfo(dtype).max, "parts", f"finite numbers in {dtype}", most)
        yield part


def _to_int8(parts, scales):
    """Round each vector to -127..127, and append the size of a step to `scales`."""
    for part in parts:
        scale = np.maximum(abs(part).max(1), 1e-30) / 127
        scales.append(scale.astype(np.float32))
        yield np.rint(part / scale[:, np.newaxis]).astype(np.int8)
