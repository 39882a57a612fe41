"""The symmetric divergence of two halves of a batch against float64 NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.functional.labels import symmetric_divergence

pytestmark = pytest.mark.one_of(10, "layers")


def reference(logits):
    """Return the divergences and the gradient of their sum in float64, from the definition."""
    shifted = logits - logits.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    (one, other), (p, q) = np.split(logs, 2), np.split(np.exp(logs), 2)
    divergence = (p * (one - other)).sum(-1) + (q * (other - one)).sum(-1)
    slopes = []
    for mine, theirs, ratio in ((p, q, one - other), (q, p, other - one)):
        # Gradient of both terms w.r.t. log `mine`, then through log_softmax: g - mine sum(g).
        slope = mine * (ratio + 1) - theirs
        slopes.append(slope - mine * slope.sum(-1, keepdims=True))
    return divergence, np.concatenate(slopes)


def found(logits, weights=1.0):
    logits = tf.constant(logits, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        divergence = symmetric_divergence(logits)
        total = tf.reduce_sum(divergence * weights)
    return divergence.numpy(), tape.gradient(total, logits).numpy()


@pytest.mark.parametrize("shape", [(6, 5, 13), (14, 11), (2, 1, 997)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_value_and_gradient_are_those_of_the_definition(shape, scale):
    logits = np.random.default_rng(7).normal(size=shape) * scale
    logits = logits.astype(np.float32).astype(np.float64)
    expected, slope = reference(logits)
    divergence, gradient = found(logits)
    assert divergence.shape == (shape[0] // 2, *shape[1:-1])
    np.testing.assert_allclose(divergence, expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=2e-5, atol=1e-6 * max(1, scale))


def test_the_reference_s_gradient_is_that_of_small_steps():
    logits = np.random.default_rng(3).normal(size=(4, 3, 5))
    slope, step = reference(logits)[1], 1e-6
    for place in np.ndindex(*logits.shape):
        moved = np.zeros_like(logits)
        moved[place] = step
        change = reference(logits + moved)[0].sum() - reference(logits - moved)[0].sum()
        np.testing.assert_allclose(slope[place], change / (2 * step), atol=1e-8)


def test_each_position_s_gradient_has_its_own_weight():
    logits = np.random.default_rng(5).normal(size=(4, 3, 7)).astype(np.float32)
    weights = np.array([[0.0, 2.0, 0.5], [1.0, 0.0, 3.0]], np.float32)
    expected = reference(logits.astype(np.float64))[1]
    expected *= np.concatenate([weights, weights])[..., np.newaxis]
    np.testing.assert_allclose(found(logits, weights)[1], expected, rtol=2e-5, atol=1e-6)


def test_equal_halves_do_not_diverge_and_great_logits_do_not_overflow():
    half = np.random.default_rng(2).normal(size=(3, 5)) * 1e4
    divergence, gradient = found(np.concatenate([half, half]))
    np.testing.assert_array_equal(divergence, 0)
    np.testing.assert_array_equal(gradient, 0)
    divergence, gradient = found([[1e4, 0.0], [0.0, 1e4]])
    np.testing.assert_array_equal(divergence, [2e4])
    np.testing.assert_allclose(gradient, [[1, -1], [-1, 1]])  # confident in opposite classes
