"""Masked accuracy against the reference."""

import keras
import numpy as np
import reference_numpy as ref
import tensorflow as tf
from loading import close, vectors

from tf_transformer import MaskedAccuracy

LABELS = np.array([[6, 0, 2], [17, 2, 0]], np.int32)
LOGITS = np.eye(19, dtype=np.float32)[[[6, 0, 3], [17, 2, 5]]]  # 3 of 4 correct, ignoring padding


def test_accuracy_matches_the_reference_and_the_vectors():
    data = vectors("transformer")
    close(MaskedAccuracy()(data["labels"], data["logits"]), data["accuracy"])
    assert float(MaskedAccuracy()(LABELS, LOGITS)) == ref.masked_accuracy(LABELS, LOGITS) == 0.75


def test_accuracy_is_over_all_tokens_since_the_last_reset():
    metric = MaskedAccuracy()
    assert float(metric.result()) == 0.0
    metric.update_state(LABELS, LOGITS)
    metric.update_state([[6]], LOGITS[:1, 2:])  # one more token, wrong
    assert np.isclose(metric.result(), 3 / 5)
    metric.reset_state()
    assert float(metric.result()) == 0.0


def test_a_weight_for_each_token():
    weight = np.array([[2.0, 1.0, 0.0], [1.0, 0.0, 1.0]], np.float32)
    metric = MaskedAccuracy()
    metric.update_state(LABELS, LOGITS, sample_weight=weight)
    assert float(metric.result()) == 1.0


def test_a_batch_of_nothing_but_padding_leaves_it_alone():
    metric = MaskedAccuracy()
    metric.update_state(LABELS, LOGITS)
    metric.update_state(0 * LABELS, LOGITS)
    assert float(metric.result()) == 0.75


def test_in_a_graph_and_in_half_precision():
    metric = MaskedAccuracy()
    update = tf.function(metric.update_state, autograph=False)
    update(tf.constant(LABELS), tf.cast(LOGITS, tf.bfloat16))
    assert float(metric.result()) == 0.75


def test_the_metric_goes_through_a_config():
    metric = MaskedAccuracy(name="mine")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert again.name == "mine"
