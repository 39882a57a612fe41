"""What is recorded is what was computed, and only inside the context."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import MultiHeadAttention
from tf_transformer.functional.attention.scaled_dot_product import recorded_attention


@pytest.fixture
def inputs():
    rng = np.random.default_rng(2)
    return [tf.constant(rng.standard_normal((2, n, 12)), tf.float32) for n in (3, 5, 5)]


@pytest.mark.parametrize("groups", [6, 2])
def test_queries_and_keys_give_the_weights(inputs, groups):
    layer = MultiHeadAttention(d_model=12, num_heads=6, num_key_value_heads=groups)
    with recorded_attention() as calls:
        _, expected = layer(*inputs)
        layer(*inputs, return_attention_weights=False)
    queries, keys, weights = calls[0]
    assert keys.shape == (2, groups, 5, 2)
    keys = np.repeat(keys, 6 // groups, axis=1).astype(np.float64)
    scores = queries.numpy().astype(np.float64) @ np.swapaxes(keys, 2, 3) / np.sqrt(2)
    exponentials = np.exp(scores)
    exact = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, exact, atol=1e-5)
    assert weights is expected
    assert len(calls) == 2 and calls[1].weights is None


def test_nothing_is_recorded_outside(inputs):
    layer = MultiHeadAttention(d_model=12, num_heads=3)
    with recorded_attention() as outer:
        with recorded_attention() as inner:
            layer(*inputs)
        layer(*inputs)
    layer(*inputs)
    assert len(inner) == len(outer) == 1
