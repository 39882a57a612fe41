"""What all models have in common: variables before `fit`, files, what a subclass adds."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import Transformer
from tf_transformer.compression import quantized
from tf_transformer.models.bert import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
)
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


@keras.saving.register_keras_serializable(package="tests")
class WithHead(Transformer):
    """As a user would add a layer: without a `build` of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.head = keras.layers.Dense(13)

    def call(self, inputs, training=None):
        return self.head(super().call(inputs, training))


def test_layers_of_a_subclass_are_trained_saved_and_loaded(tmp_path):
    """Loaded, the head once had new random weights, without a message."""
    model = WithHead(1, 8, 2, 11, 13, 13, pe_input=8, pe_target=8)
    model.compile("adam", SmoothedCrossentropy())
    model.fit((IDS, IDS), IDS, verbose=0)
    assert len(model.optimizer.variables) == 2 + 2 * len(model.trainable_weights)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again((IDS, IDS)), model((IDS, IDS)))
    np.testing.assert_array_equal(again.head.kernel, model.head.kernel)


def test_weights_of_a_larger_model_are_refused(tmp_path):
    sizes = {"pe_input": 8, "pe_target": 8}
    larger, model = (Transformer(n, 8, 2, 11, 13, 13, **sizes) for n in (2, 1))
    for one in (larger, model):
        one.build()
    larger.save_weights(tmp_path / "larger.weights.h5")
    before = model.get_weights()
    with pytest.raises(ValueError, match="filepath: expected the 46 weights .* got 88"):
        model.load_weights(tmp_path / "larger.weights.h5")
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    model.load_weights(tmp_path / "larger.weights.h5", skip_mismatch=True)


def test_a_trained_models_weights_load(tmp_path):
    """Keras writes the optimizer's variables into the same file."""
    model, inputs, labels, loss, metric = translator()
    model.compile("adam", loss, metrics=[metric])
    model.fit(inputs, labels, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    again = translator()[0]
    again.build()
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(again(inputs), model(inputs))


def test_models_share_a_loss_each_with_its_own_class_to_ignore():
    loss = SmoothedCrossentropy()
    tagger = BertForTokenClassification(BertConfig(13, 8, 1, 2, 11, labels=("a", "b")))
    tagger.compile("sgd", loss)
    assert (tagger.loss.ignore_class, loss.ignore_class) == (-100, "auto")


def test_a_quantized_model_is_not_saved_as_a_file_that_nothing_reads(tmp_path):
    model = translator()[0]
    model.build()
    with pytest.raises(ValueError, match="model: expected float weights.* quantize it again"):
        quantized(model).save(tmp_path / "model.keras")
    assert not (tmp_path / "model.keras").exists()


@pytest.mark.parametrize("shape", [(None, 16), ((None, 16),), {"inp": (None, 16)}])
def test_other_shapes_to_build_with_are_refused(shape):
    with pytest.raises(ValueError, match="input_shape: expected those of .inp, tar."):
        translator()[0].build(shape)


def test_other_backends_of_keras_are_refused_at_once():
    program = "from tf_transformer import Transformer"
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert b"KERAS_BACKEND: expected tensorflow" in run.stderr and b"got jax" in run.stderr
