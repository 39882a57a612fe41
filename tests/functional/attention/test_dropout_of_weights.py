"""Dropout of attention weights, with every plan."""

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from attention_plans import (
    attend_with_gradients,
    every_path,
    every_plan,
    options_of,
    path,
    some_inputs,
)

from tf_transformer import scaled_dot_product_attention

pytestmark = pytest.mark.one_of(10, "parts")


@pytest.mark.one_of(10)
@every_plan
@every_path
def test_dropout_keeps_its_rate_and_drops_the_same_weights_backward(name, plan):
    """With v = I, the output is the attention weights after dropout."""
    t, s = 23, 29
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((2, 3, t, 4)), rng.standard_normal((2, 3, s, 4))
    v, g = np.broadcast_to(np.eye(s), (2, 3, s, s)), rng.standard_normal((2, 3, t, s))
    run = path(name, plan, dropout=(0.3, (1, 2)))
    inputs = [tf.constant(x) for x in (q, k, v)]
    dropped, (dq, dk, dv) = run(*inputs, None, None, tf.constant(g))
    _, weights = ref.scaled_dot_product_attention(q, k, v)
    factors = dropped.numpy() / weights
    kept = factors > 0.5
    np.testing.assert_allclose(factors, kept / 0.7, atol=1e-5)
    assert abs(kept.mean() - 0.7) < 0.03
    assert len({row.tobytes() for row in kept.reshape(-1, s)}) == 2 * 3 * t, "repeated rows"
    # Gradients of attention with exactly these dropout factors.
    dweights = g @ np.swapaxes(v, -1, -2) * factors
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    np.testing.assert_allclose(dq, dscores @ k / 2, atol=1e-5)
    np.testing.assert_allclose(dk, np.swapaxes(dscores, -1, -2) @ q / 2, atol=1e-5)
    np.testing.assert_allclose(dv, np.swapaxes(dropped, -1, -2) @ g, atol=1e-5)
    again, _ = run(*inputs, None, None, tf.constant(g))
    np.testing.assert_array_equal(again, dropped)


@pytest.mark.one_of(10)
@every_plan
def test_under_causal_no_two_rows_drop_the_same_weights(plan):
    length, shared = 64, 20  # compare rows from `shared` on, in their common keys
    q, v = tf.zeros((1, 1, length, 4)), tf.eye(length)[tf.newaxis, tf.newaxis]
    dropped, _ = scaled_dot_product_attention(
        q,
        q,
        v,
        causal=True,
        dropout=(0.5, (1, 2)),
        return_attention_weights=False,
        **options_of(plan),
    )
    kept = dropped.numpy()[0, 0, shared:, :shared] > 0
    assert len({row.tobytes() for row in kept}) == length - shared


@pytest.mark.one_of(10)
@every_plan
def test_another_seed_drops_other_weights(plan):
    q, k, v, g = some_inputs()
    outputs = [
        attend_with_gradients(q, k, v, None, None, g, **options_of(plan), dropout=(0.5, seed))[0]
        for seed in ((1, 2), (1, 3), tf.constant([2, 2]))
    ]
    assert not (outputs[0] == outputs[1]).numpy().all()
    assert not (outputs[0] == outputs[2]).numpy().all()


def test_the_weights_that_are_returned_are_those_before_dropout():
    q, k, v, _ = some_inputs()
    _, weights = scaled_dot_product_attention(q, k, v, dropout=(0.5, (1, 2)))
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0, rtol=1e-6)
