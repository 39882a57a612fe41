"""Embedding many lines, and searching for the nearest."""

import io
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.export import embed_lines, nearest, write_vectors


class Lengths:
    """A fake encoder that returns the length of each line and records its batches."""

    def __init__(self):
        self.batches = []

    def __call__(self, texts):
        lengths = tf.strings.length(texts).numpy()
        self.batches.append(lengths)
        return tf.constant(np.stack([lengths, -lengths], 1), tf.float32)


@pytest.mark.parametrize("count", [0, 1, 7, 64, 65, 1000])
def test_keeps_the_order_whatever_the_batches(count):
    lines = ["x" * (n * 37 % 101) for n in range(count)]
    parts = list(embed_lines(Lengths(), lines, batch_size=13, lines_at_once=64))
    expected = [[len(line), -len(line)] for line in lines]
    assert [row for part in parts for row in part.tolist()] == expected
    assert all(part.dtype == np.float32 and len(part) <= 64 for part in parts)


def test_equal_lengths_stand_together():
    encode = Lengths()
    lines = ["x" * (n * 37 % 101) for n in range(1000)]
    list(embed_lines(encode, lines, batch_size=50, lines_at_once=1000))
    assert max(np.ptp(batch) for batch in encode.batches) <= 6


def test_reads_no_more_than_it_needs():
    read = []
    parts = embed_lines(Lengths(), (read.append(n) or "x" for n in range(100)), 4, 10)
    next(parts)
    assert len(read) == 10


def test_memory_does_not_grow_with_the_lines():
    def peak(count):
        tracemalloc.start()
        write_vectors(io.BytesIO(), embed_lines(Lengths(), ("x" for _ in range(count)), 64, 64), 2)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most - 8 * count  # minus the vectors written

    peak(64)
    assert peak(8192) < 2 * peak(512) + 200_000


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"lines_at_once": 0}])
def test_refuses(options):
    with pytest.raises(ValueError, match="expected at least 1, got 0"):
        list(embed_lines(Lengths(), ["x"], **options))


@pytest.mark.parametrize("lines", ["xy", b"xy"])
def test_one_string_is_not_several(lines):
    with pytest.raises(ValueError, match="lines: expected a list of strings, got a string"):
        list(embed_lines(Lengths(), lines))


@pytest.mark.parametrize("sizes", [[], [3], [3, 0, 5]])
def test_writes_what_numpy_reads(sizes):
    rng, stream = np.random.default_rng(1), io.BytesIO()
    parts = [rng.standard_normal((size, 4)).astype(np.float32) for size in sizes]
    assert write_vectors(stream, parts, 4) == sum(sizes)
    stream.seek(0)
    np.testing.assert_array_equal(np.load(stream), np.concatenate([np.empty((0, 4)), *parts]))


@pytest.mark.parametrize("rows_at_once", [3, 10, 1000])
@pytest.mark.parametrize("top", [1, 5, 40])
def test_nearest_is_a_full_sort(rows_at_once, top):
    rng = np.random.default_rng(2)
    index, queries = rng.standard_normal((37, 6)), rng.standard_normal((3, 6))
    scores, rows = nearest(index.astype(np.float32), queries, top, rows_at_once)
    products = queries @ index.T
    expected = np.argsort(-products, axis=1)[:, :top]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(products, expected, 1), rtol=1e-5)


def test_of_equals_the_first():
    _, rows = nearest(np.ones((9, 2), np.float32), np.ones((1, 2)), 4, rows_at_once=2)
    assert rows.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    "index, top, message",
    [
        (np.ones((3, 5)), 1, "index: expected vectors of width 4.*got 5"),
        (np.ones(4), 1, "index: expected vectors of width 4"),
        (np.ones((3, 4)), 0, "top: expected at least 1, got 0"),
    ],
)
def test_nearest_refuses(index, top, message):
    with pytest.raises(ValueError, match=message):
        nearest(index, np.ones((2, 4)), top)
