"""Compressed vectors and approximate search, by faiss.

Axes: N texts, B queries, D width of a vector.
"""

import itertools

import numpy as np

from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage

APPROXIMATE = ("pq", "hnsw")
TRAINING = 65536  # vectors that set the centroids of "pq"
CENTROIDS = 256


class ApproximateIndex:
    """faiss with the settings that suit vectors of sentences.

    "pq": product quantization, Jégou et al. 2011: groups of numbers, four where the width allows,
    become one byte, a sixteenth of float32, and all vectors are compared. "hnsw": a graph of
    neighbours, Malkov and Yashunin 2018: float32 and links, and few vectors are compared. Both are
    held in memory.
    """

    def __init__(self, kind):
        if kind not in APPROXIMATE:
            raise ArgumentError("kind", " or ".join(APPROXIMATE), f"{kind!r}")
        self._kind, self._faiss, self._index = kind, _faiss(), None

    @classmethod
    def read(cls, path, kind, rows, width):
        """Read what `write` wrote."""
        if not path.is_file():
            raise MissingFileError("index", f"the file {path}", "none")
        index = cls(kind)
        try:
            found = index._faiss.read_index(str(path))
        except (RuntimeError, MemoryError) as error:
            raise ArgumentError(
                "index", "a file of faiss", f"{path}, which is damaged: {error}"
            ) from error
        wanted = {"pq": index._faiss.IndexPQ, "hnsw": index._faiss.IndexHNSWFlat}[kind]
        if type(found) is not wanted or (found.ntotal, found.d) != (rows, width):
            raise ArgumentError(
                "index",
                f"{rows} vectors of width {width} for {kind} in {path}",
                f"{found.ntotal} of width {found.d} for {type(found).__name__}",
            )
        index._index = found
        return index

    def write(self, path):
        """Write the file."""
        self._faiss.write_index(self._index, str(path))

    def fill(self, parts, width):
        """Train on the first vectors, then add all."""
        inner = self._faiss.METRIC_INNER_PRODUCT
        if self._kind == "hnsw":
            self._index = self._faiss.IndexHNSWFlat(width, 32, inner)
            self._index.hnsw.efConstruction, self._index.hnsw.efSearch = 200, 128
        else:
            groups = max(n for n in range(1, max(width // 4, 1) + 1) if width % n == 0)
            self._index = self._faiss.IndexPQ(width, groups, 8, inner)
            parts, first = iter(parts), []
            while sum(map(len, first)) < TRAINING and (part := next(parts, None)) is not None:
                first.append(part)
            seen = np.concatenate([np.empty((0, width), np.float32), *first])[:TRAINING]
            if len(seen) < CENTROIDS:
                raise ArgumentError(
                    "dtype", f"at least {CENTROIDS} vectors for pq", len(seen), "Use int8."
                )
            self._index.pq.cp.min_points_per_centroid = 1  # or faiss prints a warning
            self._index.train(seen)
            parts = itertools.chain(first, parts)
        for part in parts:
            self._index.add(np.ascontiguousarray(part, np.float32))
        return self._index.ntotal

    def search(self, vectors, top):
        """Find the rows with the largest dot products, approximately: see `nearest`."""
        scores, rows = self._index.search(np.ascontiguousarray(vectors), top)
        return scores, rows


def _faiss():
    try:
        import faiss
    except ImportError as error:
        raise MissingPackage('faiss-cpu is not installed: pip install -e ".[search]"') from error
    return faiss
