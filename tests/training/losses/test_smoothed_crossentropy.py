"""The loss against the reference. On several replicas: tests/models/test_replicas.py.

Axes: B batch, T target length, V vocabulary.
"""

import keras
import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from loading import close, vectors

from tf_transformer import SmoothedCrossentropy

LABELS = np.array([[6, 0, 2], [17, 2, 0]], np.int32)
LOGITS = np.random.default_rng(2).standard_normal((2, 3, 19)).astype(np.float32) * 3


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_the_loss_matches_the_reference(smoothing, dtype):
    _, expected = ref.label_smoothed_cross_entropy(LABELS, LOGITS, smoothing)
    close(SmoothedCrossentropy(smoothing)(LABELS.astype(dtype), LOGITS), expected, 1e-6)


def test_the_loss_matches_the_vectors():
    data = vectors("transformer")
    loss = SmoothedCrossentropy(float(data["loss_epsilon"]))
    close(loss(data["labels"], data["logits"]), data["loss_mean"])
    loss = SmoothedCrossentropy(float(data["loss_epsilon"]), reduction=None)
    close(loss(data["labels"], data["logits"]), data["loss_per_token"])


def test_its_gradient_matches_the_reference():
    logits = tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = SmoothedCrossentropy(0.1)(LABELS, logits)
    expected = ref.numerical_gradient(
        lambda x: ref.label_smoothed_cross_entropy(LABELS, x, 0.1)[1], LOGITS
    )
    gradient = tape.gradient(loss, logits)
    close(gradient, expected)
    assert (gradient.numpy()[LABELS == 0] == 0).all()


def test_padding_is_irrelevant_to_the_last_bit():
    loss = SmoothedCrossentropy()
    other = np.where((LABELS == 0)[..., None], np.float32(1e4), LOGITS)
    assert float(loss(LABELS, other)) == float(loss(LABELS, LOGITS))


def test_a_batch_of_nothing_but_padding_costs_nothing():
    assert float(SmoothedCrossentropy()(0 * LABELS, LOGITS)) == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_summed_in_float32(dtype):
    logits = tf.cast(LOGITS * 1000, dtype)
    _, expected = ref.label_smoothed_cross_entropy(LABELS, tf.cast(logits, tf.float64), 0.1)
    close(SmoothedCrossentropy(0.1)(LABELS, logits), expected)


def test_the_loss_goes_through_a_config():
    loss = SmoothedCrossentropy(0.3, name="mine")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert again.get_config() == loss.get_config()
    assert float(again(LABELS, LOGITS)) == float(loss(LABELS, LOGITS))


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 10])
def test_a_smoothing_that_is_no_share_is_refused(smoothing):
    message = f"label_smoothing: expected 0 <= value < 1, got {smoothing}"
    with pytest.raises(ValueError, match=message):
        SmoothedCrossentropy(smoothing)
