"""The losses of distillation against their equations in float64."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.compression.distiller import (
    attention_loss,
    hidden_state_loss,
    soft_target_loss,
)

RNG = np.random.default_rng(5)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], np.float32)


# For each row, and for each token.
WEIGHTS = (None, np.array([0.5, 2.0, 0.0]), RNG.uniform(0, 3, (3, 5)))


def mean(each, mask, weights):
    """The sum of what counts, over its number."""
    mask = np.ones_like(each) if mask is None else mask
    weights = 1.0 if weights is None else weights if np.ndim(weights) == 2 else weights[:, None]
    return (each * mask * weights).sum() / mask.sum()


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def float32(*arrays):
    return [array.astype(np.float32) for array in arrays]


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", [None, MASK])
def test_soft_targets(temperature, mask, weights):
    student, teacher = RNG.normal(0, 3, (2, 3, 5, 7))
    p, q = softmax(teacher / temperature), softmax(student / temperature)
    each = temperature**2 * (p * np.log(p / q)).sum(-1)
    found = soft_target_loss(*float32(student, teacher), temperature, mask, weights)
    np.testing.assert_allclose(found, mean(each, mask, weights), rtol=1e-5)
    of_texts = soft_target_loss(*float32(student[:, 0], teacher[:, 0]), temperature)
    np.testing.assert_allclose(of_texts, each[:, 0].mean(), rtol=1e-5)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", [None, MASK])
def test_hidden_states(mask, weights):
    student, teacher = RNG.normal(0, 1, (2, 3, 5, 7))
    each = ((student - teacher) ** 2).mean(-1)
    found = hidden_state_loss(*float32(student, teacher), mask, weights)
    np.testing.assert_allclose(found, mean(each, mask, weights), rtol=1e-5)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", [None, MASK])
def test_attention(mask, weights):
    student, teacher = RNG.normal(0, 2, (2, 3, 2, 5, 6))
    blocked = np.arange(6) >= np.array([6, 2, 4])[:, None, None, None]
    p, q = (np.where(blocked, 0, softmax(np.where(blocked, -1e9, x))) for x in (teacher, student))
    with np.errstate(all="ignore"):
        each = np.where(blocked, 0, p * np.log(p / q)).sum(-1).mean(1)
    found = attention_loss(*float32(q, p), mask, weights)
    np.testing.assert_allclose(found, mean(each, mask, weights), rtol=1e-5)
    attention = tf.constant(q, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(attention)
        loss = attention_loss(attention, tf.constant(p, tf.float32))
    assert np.isfinite(tape.gradient(loss, attention)).all()


def test_nothing_counts():
    states = np.ones((3, 5, 7), np.float32)
    assert float(hidden_state_loss(states, 0 * states, np.zeros((3, 5)))) == 0


def test_bad_input():
    x = tf.ones((1, 2, 3, 4))
    with pytest.raises(ValueError, match="expected the teacher's number of heads, 3, got 2"):
        attention_loss(x, tf.ones((1, 3, 3, 4)))
    with pytest.raises(ValueError, match="expected the teacher's width, 5, got 4"):
        hidden_state_loss(x[0], tf.ones((2, 3, 5)))
