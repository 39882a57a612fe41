"""`fit` creates all variables before it traces the first step."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import Transformer
from tf_transformer.models.bert import BertConfig, BertForSequenceClassification
from tf_transformer.training import MaskedAccuracy, SmoothedCrossentropy

IDS = tf.constant([[1, 4, 5, 2], [1, 6, 2, 0]])


def translator():
    model = Transformer(1, 8, 2, 11, 13, 13, pe_input=8, pe_target=8)
    return model, (IDS, IDS), IDS, SmoothedCrossentropy(), MaskedAccuracy()


def classifier():
    model = BertForSequenceClassification(BertConfig(13, 8, 1, 2, 11, labels=("a", "b")))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, {"input_ids": IDS}, tf.constant([0, 1]), loss, "accuracy"


@pytest.mark.parametrize("made, traces", [(translator, 1), (classifier, 2)])  # 2: a metric's name
def test_the_step_is_traced_once(made, traces, monkeypatch):
    model, inputs, labels, loss, metric = made()
    steps, train_step = [], model.train_step
    monkeypatch.setattr(model, "train_step", lambda data: steps.append(1) or train_step(data))
    model.compile(keras.optimizers.Adam(), loss, metrics=[metric], jit_compile=False)
    assert not model.optimizer.built
    model.fit(inputs, labels, epochs=2, verbose=0)
    assert len(steps) == traces


def test_training_is_that_of_a_model_made_before():
    weights = []
    for is_made_before in (False, True):
        keras.utils.set_random_seed(1)
        model, inputs, labels, loss, metric = translator()
        model.compile(keras.optimizers.Adam(), loss, metrics=[metric], jit_compile=False)
        if is_made_before:
            model.build()
            model.optimizer.build(model.trainable_variables)
        model.fit(inputs, labels, epochs=3, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_frozen_layers_stay():
    model, inputs, labels, loss, metric = translator()
    model.build()
    model.compile(keras.optimizers.Adam(), loss, metrics=[metric], jit_compile=False)
    model.encoder.trainable = False
    before = [model.encoder.get_weights(), model.decoder.get_weights()]
    model.fit(inputs, labels, verbose=0)
    after = [model.encoder.get_weights(), model.decoder.get_weights()]
    assert all(np.array_equal(*pair) for pair in zip(before[0], after[0], strict=True))
    assert not any(np.array_equal(*pair) for pair in zip(before[1], after[1], strict=True))
