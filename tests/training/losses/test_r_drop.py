"""R-Drop against its equations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import Transformer
from tf_transformer.training import RDrop, SmoothedCrossentropy

pytestmark = pytest.mark.one_of(3, "core")

INP = np.array([[5, 6, 2, 0], [7, 2, 0, 0], [8, 9, 10, 2]], np.int32)
TAR = np.array([[1, 4, 5], [1, 6, 0], [1, 3, 3]], np.int32)
LABELS = np.array([[4, 5, 2], [6, 2, 0], [3, 3, 2]], np.int32)


def made(alpha, rate=0.3, run_eagerly=True):
    keras.utils.set_random_seed(3)
    inner = Transformer(1, 8, 2, 11, 13, 13, pe_input=8, pe_target=8, rate=rate)
    inner.build()
    model = RDrop(inner, alpha)
    model.build()
    model.compile(keras.optimizers.SGD(0.1), SmoothedCrossentropy(0.1), run_eagerly=run_eagerly)
    return model


def log_softmax(x):
    x = x.astype(np.float64)
    return (
        x
        - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - x.max(-1, keepdims=True)
    )


@pytest.mark.one_of(6)
@pytest.mark.parametrize("alpha", [0.0, 2.0, 5.0])
def test_the_loss_is_that_of_the_paper(alpha):
    model = made(alpha)
    twice = np.concatenate([INP, INP]), np.concatenate([TAR, TAR])
    logits = model(twice, training=True)
    labels = np.concatenate([LABELS, LABELS])
    actual = model.compute_loss(twice, tf.constant(labels), logits, training=True)
    logs = log_softmax(logits.numpy())
    smooth = 0.9 * np.eye(13)[labels] + 0.1 / 13
    one, other = np.split(logs, 2)
    real = LABELS != 0
    entropy = -(smooth * logs).sum(-1)[labels != 0].mean()
    first = (np.exp(one) * (one - other)).sum(-1)[real].mean()
    second = (np.exp(other) * (other - one)).sum(-1)[real].mean()
    assert first > 1e-3  # the two passes drop different units
    np.testing.assert_allclose(actual, entropy + alpha / 4 * (first + second), rtol=1e-5)


def test_the_loss_of_a_classifier_with_a_class_0_and_a_row_of_padding():
    model = RDrop(keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)]), 5.0)
    model.compile("sgd", SmoothedCrossentropy(0.0))
    labels, weights = np.array([0, 3, -1, 0, 3, -1]), np.array([2.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    logits = np.random.default_rng(4).normal(size=(6, 4)).astype(np.float32)
    for sample_weight in (None, weights):
        given = None if sample_weight is None else tf.constant(sample_weight)
        actual = model.compute_loss(None, tf.constant(labels), tf.constant(logits), given)
        logs, w = log_softmax(logits), np.ones(6) if sample_weight is None else sample_weight
        (one, other), real = np.split(logs, 2), labels[:3] >= 0
        entropy = -(w * logs[np.arange(6), labels])[labels >= 0].mean()
        both = (np.exp(one) * (one - other)).sum(-1) + (np.exp(other) * (other - one)).sum(-1)
        np.testing.assert_allclose(actual, entropy + 5 / 4 * (w[:3] * both)[real].mean(), rtol=1e-5)


@pytest.mark.slow
def test_a_step_sees_the_batch_twice_and_makes_the_passes_agree():
    def disagreement(alpha):
        model = made(alpha, run_eagerly=False)
        for _ in range(40):
            model.train_on_batch((INP, TAR), LABELS)
        twice = np.concatenate([INP] * 64), np.concatenate([TAR] * 64)
        one, other = np.split(log_softmax(model(twice, training=True).numpy()), 2)
        return (np.exp(one) * (one - other)).sum(-1).mean()

    assert disagreement(50.0) < 0.5 * disagreement(0.0)


@pytest.mark.slow
def test_without_dropout_it_changes_nothing():
    model, plain = made(5.0, rate=0.0), made(5.0, rate=0.0).model
    plain.compile(keras.optimizers.SGD(0.1), SmoothedCrossentropy(0.1))
    for _ in range(3):
        loss = model.train_on_batch((INP, TAR), LABELS)
        np.testing.assert_allclose(loss, plain.train_on_batch((INP, TAR), LABELS), rtol=1e-5)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_validation_and_prediction_are_the_model_s_own():
    model = made(5.0)
    expected = model.model((INP, TAR), training=False)
    np.testing.assert_array_equal(model((INP, TAR), training=False), expected)
    loss = SmoothedCrossentropy(0.1)(LABELS, expected)
    np.testing.assert_allclose(model.test_on_batch((INP, TAR), LABELS), loss, rtol=1e-6)


def test_it_is_saved_with_its_model(tmp_path):
    model = made(5.0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.alpha == 5.0
    np.testing.assert_array_equal(
        loaded((INP, TAR), training=False), model((INP, TAR), training=False)
    )


def test_a_negative_alpha_is_refused():
    with pytest.raises(ValueError, match="alpha: expected at least 0, got -1"):
        made(-1)


def test_files_of_weights_are_the_model_s_own(tmp_path):
    model, path = made(5.0), tmp_path / "all.weights.h5"
    expected = model.get_weights()
    for source, target in ((model, model.model), (model.model, model)):
        model.set_weights(expected)
        source.save_weights(path)
        model.set_weights([weight * 0 for weight in expected])
        target.load_weights(path)
        for one, other in zip(model.get_weights(), expected, strict=True):
            np.testing.assert_array_equal(one, other)
