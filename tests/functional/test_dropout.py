"""Dropout factors: share of zeros, mean, and bitwise equality on every path."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.functional.attention.whole import dropout_factors, fold_in
from tf_transformer.layers import Dropout

SEED = (3, 5)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.937])
def test_the_rate_is_kept_and_the_mean_is_one(rate):
    factors = dropout_factors((1009, 101), tf.float32, rate, SEED).numpy()
    deviation = np.sqrt(rate * (1 - rate) / factors.size)
    assert abs(np.mean(factors == 0) - rate) < 5 * deviation
    dropped = round(rate * 2**16) / 2**16
    np.testing.assert_allclose(np.unique(factors), [0, 1 / (1 - dropped)], rtol=1e-6)


@pytest.mark.parametrize(
    ("rate", "kept"),
    [(0.0, 1.0), (1e-9, 1.0), (1 - 1e-9, 2.0**16), (2**-16, np.float32(65536 / 65535))],
)
def test_rates_at_the_ends_stay_finite(rate, kept):
    factors = dropout_factors((331, 331), tf.float32, rate, SEED).numpy()
    assert set(np.unique(factors)) <= {0.0, kept}
    assert (0 in factors) == (rate > 1e-5)


def test_neighbors_are_drawn_independently():
    # Two factors share one 32-bit number; an odd width leaves half of one unused.
    kept = dropout_factors((2003, 7), tf.float32, 0.5, SEED).numpy() > 0
    for step in range(1, 7):
        for column in range(7 - step):
            both = np.mean(kept[:, column] == kept[:, column + step])
            assert abs(both - 0.5) < 5 * 0.5 / np.sqrt(2003)
    assert 0.4 < np.mean(kept[:-1] == kept[1:]) < 0.6


@pytest.mark.parametrize("shape", [(5,), (2, 3, 8), (2, 3, 7), (0, 4), (3, 0)])
def test_the_same_factors_eager_in_a_graph_and_by_xla(shape):
    def draw(shape):
        return dropout_factors(shape, tf.float32, 0.3, SEED)

    expected = draw(shape)
    assert expected.shape == shape
    for jit in (False, True):
        compiled = tf.function(lambda: draw(shape), jit_compile=jit)
        np.testing.assert_array_equal(compiled(), expected)
    dynamic = tf.function(lambda x: draw(tf.shape(x)), reduce_retracing=True)
    np.testing.assert_array_equal(dynamic(tf.zeros(shape)), expected)


@pytest.mark.parametrize("seed", [(3, 5), (-3, 5), (2**31 - 1, -(2**31))])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_draws_are_those_of_tensorflow(seed, dtype):
    seed, philox = tf.constant(seed, dtype), {"alg": "philox"}
    other = tf.random.experimental.stateless_fold_in(seed, 7, **philox)
    words = tf.random.stateless_uniform((11, 2), other, None, None, tf.int32, **philox)
    kept = tf.reshape(tf.bitcast(words, tf.int16), (11, 4))[:, :3] >= round(0.3 * 2**16) - 2**15
    for jit in (False, True):

        @tf.function(jit_compile=jit)
        def draw():
            return fold_in(seed, 7), dropout_factors((11, 3), tf.float32, 0.3, fold_in(seed, 7))

        found, factors = draw()
        np.testing.assert_array_equal(found, other)
        np.testing.assert_array_equal(factors > 0, kept)


def test_the_layer_multiplies_and_so_does_its_gradient():
    layer = Dropout(0.3, seed=1)
    x = tf.constant(np.random.default_rng(0).standard_normal((11, 13)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    factors = tape.gradient(y, x).numpy()
    np.testing.assert_array_equal(y, x * factors)
    assert 0.1 < np.mean(factors == 0) < 0.5
    assert np.any(layer(x, training=True) != y)  # new draws
    again = Dropout(0.3, seed=1)(x, training=True)
    np.testing.assert_array_equal(again, y)


def outcome(layer):
    """The sum of what is left of 512 x 512 ones; some versions of Keras refuse a rate of 1."""
    try:
        return float(tf.reduce_sum(layer(tf.ones((512, 512)), training=True)))
    except ValueError:
        return "refused"


def test_the_layer_does_nothing_outside_of_training_and_what_keras_does_elsewhere():
    x = tf.ones((5, 7))
    assert Dropout(0.5)(x) is x
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)
    assert outcome(Dropout(1.0)) == outcome(keras.layers.Dropout(1.0))
    rows = Dropout(0.5, noise_shape=(5, 1), seed=2)(x, training=True).numpy()
    np.testing.assert_array_equal(rows, rows[:, :1] + 0 * rows)
    with pytest.raises(ValueError, match="rate"):
        Dropout(1.5)
