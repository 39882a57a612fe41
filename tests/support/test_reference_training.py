"""The training reference against hand calculations, Keras and calculus, as in `test_reference`."""

import math

import keras
import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from exact import close

B, T, S, D, V = 2, 3, 5, 28, 19


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_label_smoothing_by_hand():
    # p = (1/4, 3/4), true class 1, epsilon 1/2: target = (1/4, 3/4).
    per_token, mean = ref.label_smoothed_cross_entropy([[1, 0]], [[[0, math.log(3)]] * 2], 0.5)
    expected = math.log(4) / 4 + 3 * math.log(4 / 3) / 4
    close(per_token, [[expected, 0]])
    close(mean, expected)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_label_smoothing_matches_keras(rng, epsilon):
    logits = 3 * rng.standard_normal((B, T, V))
    labels = np.array([[6, 0, 2], [17, 2, 0]])
    per_token, mean = ref.label_smoothed_cross_entropy(labels, logits, epsilon)
    loss = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=epsilon, reduction=None, dtype="float64"
    )
    expected = loss(tf.one_hot(labels, V, dtype="float64"), tf.constant(logits)).numpy()
    keep = labels != 0
    close(per_token[keep], expected[keep])
    assert (per_token[~keep] == 0).all()
    close(mean, expected[keep].mean())


def test_masked_accuracy_known_value():
    labels = np.array([[6, 0, 2], [17, 2, 0]])
    logits = np.eye(V)[[[6, 0, 3], [17, 2, 5]]]  # three of the four real tokens; padding is ignored
    assert ref.masked_accuracy(labels, logits) == 3 / 4


def test_schedule_rises_to_warmup_then_falls():
    steps = np.arange(1, 200)
    rate = ref.warmup_schedule(steps, D, warmup_steps=53)
    assert steps[rate.argmax()] == 53
    close(rate.max(), 1 / math.sqrt(D * 53))
    close(rate[:53], rate[0] * steps[:53])  # linear warmup
    close(rate[52:] ** -2, D * steps[52:])  # then inverse square root
    # The paper's base model: 512 wide, 4000 steps of warmup.
    close(ref.warmup_schedule(4000, 512), 6.987712429686843e-4)


@pytest.mark.parametrize(
    ("beta1", "beta2", "tolerance"),
    # Keras rounds the betas to float32; the first two are exact there. It adds epsilon before the
    # bias correction, a difference of about rate * 1e-8 / |gradient|.
    [(0.875, 0.96875, 1e-9), (0.9, 0.98, 1e-7)],
)
def test_adam_matches_keras(rng, beta1, beta2, tolerance):
    rate = 2.0**-10
    optimizer = keras.optimizers.Adam(rate, beta_1=beta1, beta_2=beta2, epsilon=1e-9)
    param = rng.standard_normal((T, S))
    variable = keras.Variable(param, dtype="float64")
    m = v = np.zeros_like(param)
    for step in (1, 2, 3):
        grad = rng.standard_normal((T, S))
        optimizer.apply([tf.constant(grad)], [variable])
        param, m, v = ref.adam_update(param, grad, m, v, step, rate, beta1, beta2)
        close(variable.numpy(), param, tolerance)


def test_adam_first_step_by_hand():
    # The corrected moments are g and g^2, so the first step is -rate * sign(g).
    param, m, v = ref.adam_update(np.array([1.0, 1.0]), np.array([4.0, -0.5]), 0.0, 0.0, 1, 0.25)
    close(param, [0.75, 1.25], 1e-8)
    close(m, [0.4, -0.05])
    close(v, [0.32, 0.005])


def test_numerical_gradient_matches_calculus(rng):
    x = rng.standard_normal((T, S))
    kept = x.copy()
    close(ref.numerical_gradient(lambda a: (a**3).sum(), x), 3 * x**2, 1e-8)
    np.testing.assert_array_equal(x, kept)
