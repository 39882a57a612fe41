"""Indices of stored vectors: what they find, in every dtype, and for which model."""

import json
import shutil

import numpy as np
import pytest

from tf_transformer.export import VectorIndex, nearest, write_index

pytestmark = pytest.mark.one_of(10, "served")

WIDTH, COUNT = 24, 1009
KINDS = ["float32", "float16", "int8", "pq", "hnsw"]


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


VECTORS = unit(np.random.default_rng(1).standard_normal((COUNT, WIDTH)))
QUERIES = unit(VECTORS[:13] + 0.3 * unit(np.random.default_rng(2).standard_normal((13, WIDTH))))


def encode(texts, seed=0):
    """A fake model: a random vector for each text."""
    rows = [np.random.default_rng([seed, *text.encode()]).standard_normal(WIDTH) for text in texts]
    return unit(np.array(rows))


def parts():
    return iter(np.split(VECTORS, [3, 700]))


@pytest.mark.parametrize("dtype", KINDS)
def test_finds_the_nearest(dtype, tmp_path):
    facts = write_index(tmp_path / "index", parts(), encode, dtype)
    assert facts == {"rows": COUNT, "width": WIDTH, "dtype": dtype}
    index = VectorIndex(tmp_path / "index")
    index.check_model(encode)
    scores, rows = index.search(QUERIES, 5)
    expected, exact = nearest(VECTORS, QUERIES, 5)
    tolerance = {"float32": 1e-6, "float16": 1e-3, "int8": 0.01, "pq": 0.2, "hnsw": 1e-5}[dtype]
    np.testing.assert_array_equal(rows[:, 0], np.arange(13))
    found = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(rows, exact, strict=True)])
    assert found >= {"int8": 0.9, "pq": 0.4, "hnsw": 0.95}.get(dtype, 0.98)
    np.testing.assert_allclose(scores[:, 0], expected[:, 0], atol=tolerance)


def test_sizes(tmp_path):
    sizes = {}
    for dtype in KINDS[:4]:
        write_index(tmp_path / dtype, parts(), encode, dtype)
        [file] = (tmp_path / dtype).glob("vectors.*")
        sizes[dtype] = file.stat().st_size
    assert sizes["float16"] < 0.51 * sizes["float32"]
    assert sizes["int8"] < 0.26 * sizes["float32"]
    codes = sizes["pq"] - 4 * 256 * WIDTH  # without the centroids
    assert codes < 0.07 * sizes["float32"]


def test_another_model_is_noticed(tmp_path):
    write_index(tmp_path / "index", parts(), encode)
    index = VectorIndex(tmp_path / "index")
    rounded = lambda texts: np.round(encode(texts), 2)  # noqa: E731
    index.check_model(rounded)
    with pytest.raises(
        ValueError, match="index: expected one that this model made, with the same pooling"
    ):
        index.check_model(lambda texts: encode(texts, seed=1))
    with pytest.raises(ValueError, match="index: expected vectors of width 23, .* got 24"):
        index.check_model(lambda texts: encode(texts)[:, 1:])


def test_zeros_no_vectors_and_more_than_there_are(tmp_path):
    for dtype in ("float32", "int8", "hnsw"):
        write_index(tmp_path / dtype, iter([]), encode, dtype)
        scores, rows = VectorIndex(tmp_path / dtype).search(QUERIES, 3)
        assert scores.shape == rows.shape == (13, 0)
        write_index(tmp_path / dtype, [np.zeros((2, WIDTH), np.float32)], encode, dtype)
        scores, rows = VectorIndex(tmp_path / dtype).search(QUERIES, 3)
        assert scores.shape == (13, 2) and np.isfinite(scores).all()


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="dtype: expected one of float32, .* got 'int4'"):
        write_index(tmp_path / "index", parts(), encode, "int4")
    with pytest.raises(ValueError, match="dtype: expected at least 256 vectors for pq, got 255"):
        write_index(tmp_path / "index", [VECTORS[:255]], encode, "pq")
    with pytest.raises(FileNotFoundError, match="index: expected a folder with vector_index.json"):
        VectorIndex(tmp_path)
    for dtype, number in (("int8", np.nan), ("float16", 70000.0), ("float32", np.inf)):
        wrong = [np.full((5, WIDTH), number, np.float32)]
        with pytest.raises(ValueError, match=f"parts: expected finite numbers in float.*{number}"):
            write_index(tmp_path / dtype, wrong, encode, dtype)
        assert not (tmp_path / dtype).exists()
    with pytest.raises(ValueError, match=r"parts: expected vectors of width 24, .* \(5, 23\)"):
        write_index(tmp_path / "index", [VECTORS[:5, 1:]], encode)
    for dtype in ("float32", "hnsw"):
        write_index(tmp_path / dtype, parts(), encode, dtype)
        index = VectorIndex(tmp_path / dtype)
        with pytest.raises(ValueError, match="top: expected at least 1, got 0"):
            index.search(QUERIES, 0)
        with pytest.raises(ValueError, match="index: expected vectors of width 23"):
            index.search(QUERIES[:, 1:], 3)
        with pytest.raises(ValueError, match=r"vectors: expected an array \(B, D\), got shape"):
            index.search(QUERIES[0], 3)
        (tmp_path / dtype / "vector_index.json").write_text("{}")
        with pytest.raises(ValueError, match="index: expected a description in"):
            VectorIndex(tmp_path / dtype)
        shutil.rmtree(tmp_path / dtype)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="mine"):
        write_index(tmp_path / "mine", parts(), encode)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_stop_keeps_the_index_before(tmp_path):
    write_index(tmp_path / "index", parts(), encode)
    before = json.loads((tmp_path / "index" / "vector_index.json").read_text())

    def breaks():
        yield VECTORS[:5]
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        write_index(tmp_path / "index", breaks(), encode, "float16")
    assert json.loads((tmp_path / "index" / "vector_index.json").read_text()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
