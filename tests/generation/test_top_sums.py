"""The largest sums found block by block, against a full sort."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.generation.decoding import top_sums

pytestmark = pytest.mark.one_of(3, "core")

BATCH = 3


def expected(values, offsets, count):
    """Return the largest of all sums; of equal ones the first."""
    sums = values.reshape(*offsets.shape, -1) + offsets[..., None]  # (B, K, V)
    flat = sums.reshape(len(sums), -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :count]
    rows, tokens = np.divmod(order, sums.shape[-1])
    return np.take_along_axis(flat, order, axis=1), rows, tokens


@pytest.mark.one_of(10)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows, width", [(1, 997), (5, 997), (4, 900), (3, 7), (2, 1)])
@pytest.mark.parametrize("share", ["one", "ten", "a third", "all"])
def test_they_are_those_of_a_whole_order(rows, width, share, compiled):
    total = rows * width
    count = {"one": 1, "ten": min(10, total), "a third": -(-total // 3), "all": total}[share]
    rng = np.random.default_rng(count)
    # Integers, so that many sums are equal.
    values = rng.integers(-9, 9, (BATCH * rows, width)).astype(np.float32)
    offsets = rng.integers(-2, 2, (BATCH, rows)).astype(np.float32)
    function = tf.function(
        lambda values, offsets: top_sums(values, offsets, count),
        jit_compile=compiled,
        autograph=False,
    )
    for actual, wanted in zip(
        function(values, offsets), expected(values, offsets, count), strict=True
    ):
        np.testing.assert_array_equal(actual, wanted)


def test_what_is_impossible_has_the_place_of_a_token():
    values = np.full((2, 101), -np.inf, np.float32)
    values[0, 100] = 1.0
    sums, rows, tokens = top_sums(tf.constant(values), tf.constant([[0.5, 0.0]]), 7)
    np.testing.assert_array_equal(sums, [[1.5] + [-np.inf] * 6])
    assert (rows[0, 0], tokens[0, 0]) == (0, 100)
    assert tokens.numpy().min() >= 0 and tokens.numpy().max() < 101
    assert set(rows.numpy().ravel()) <= {0, 1}


@pytest.mark.parametrize("count", [57, 120])
def test_what_fills_a_last_block_up_is_no_token(count):
    values = tf.random.stateless_normal((60, 53), (1, 2))
    offsets = tf.where(tf.range(60) == 0, 0.0, -np.inf)[tf.newaxis]
    sums, _, tokens = top_sums(values, offsets, count)
    assert np.isfinite(sums).sum() == 53 and np.isfinite(sums[0, :53]).all()
    assert tokens.numpy().max() == 52


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("worthless", [None, np.nan, np.inf])
def test_rows_that_are_impossible_give_nothing(worthless, compiled):
    values = tf.random.stateless_normal((6, 211), (1, 2))
    if worthless is not None:
        values = tf.where(tf.reshape(tf.range(6) % 4, (-1, 1)) == 0, values, worthless)
    offsets = tf.constant([[0.0, -np.inf, -np.inf], [-np.inf, 0.0, -np.inf]])
    function = tf.function(top_sums, jit_compile=compiled, autograph=False)
    sums, rows, tokens = function(values, offsets, 5)
    wanted, ids = tf.math.top_k(tf.gather(values, [0, 4]), 5)
    np.testing.assert_array_equal(sums, wanted)
    np.testing.assert_array_equal(tokens, ids)
    np.testing.assert_array_equal(rows, [[0] * 5, [1] * 5])
