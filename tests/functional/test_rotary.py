"""Rotary positions: the rotation, its gradient and the gradient of that, in both pairings."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.functional.positions import PAIRINGS, rotate

X, W = (np.random.default_rng(n).standard_normal((2, 3, 5, 14)) for n in (0, 1))
V = np.random.default_rng(2).standard_normal(X.shape)
AT = np.array([0, 1, 2, 7, 1000])


def matrix(pairing):
    """The rotation of each position as a matrix, (5, 14, 14)."""
    turns = np.zeros((5, 14, 14))
    for row, position in enumerate(AT):
        for pair in range(7):
            a = position / 3.0 / 500.0 ** (2 * pair / 14)
            i, j = (2 * pair, 2 * pair + 1) if pairing == "interleaved" else (pair, pair + 7)
            turns[row, [i, i, j, j], [i, j, i, j]] = np.cos(a), -np.sin(a), np.sin(a), np.cos(a)
    return turns


def derivatives(x, weights, direction, pairing):
    """The rotated x, the gradient of sum(w y^3) / 3, and that gradient's along a direction."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = rotate(x, tf.constant(AT), 500.0, 3.0, pairing)
            loss = tf.reduce_sum(weights * y**3) / 3.0
        gradient = inner.gradient(loss, x)
        along = tf.reduce_sum(gradient * direction)
    return y, gradient, outer.gradient(along, x)


@pytest.mark.parametrize("jit", [None, False, True], ids=["eager", "graph", "xla"])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rotation_and_its_derivatives(pairing, jit):
    turns = matrix(pairing)
    y = np.einsum("tij,bntj->bnti", turns, X)
    gradient = np.einsum("tij,bnti->bntj", turns, W * y**2)
    turned = np.einsum("tij,bntj->bnti", turns, V)
    second = np.einsum("tij,bnti->bntj", turns, 2.0 * W * y * turned)
    run = derivatives
    if jit is not None:
        run = tf.function(derivatives, jit_compile=jit, autograph=False)
    found = run(*map(tf.constant, (X, W, V)), pairing)
    for one, expected in zip(found, (y, gradient, second), strict=True):
        np.testing.assert_allclose(one, expected, atol=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 3e-2)])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_other_dtypes(pairing, dtype, tolerance):
    y = rotate(tf.cast(X, dtype), tf.constant(AT), 500.0, 3.0, pairing)
    assert y.dtype == dtype and y.shape == X.shape
    expected = np.einsum("tij,bntj->bnti", matrix(pairing), X)
    np.testing.assert_allclose(tf.cast(y, tf.float64), expected, atol=tolerance)
