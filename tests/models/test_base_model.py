"""Models create variables before the first step, export after it, and refuse unreadable files.

Axes: B=2 batch, T=5 length.
"""

import copy
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import LanguageModel, Transformer
from tf_transformer.compression import quantized
from tf_transformer.models.bert import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    SentenceEncoder,
    TwoTowers,
)
from tf_transformer.training import FusedAdam, MaskedAccuracy, RDrop, SmoothedCrossentropy

pytestmark = pytest.mark.one_of(10, "parts")

IDS = tf.constant([[1, 4, 5, 2], [1, 6, 2, 0]])


def translator():
    model = Transformer(1, 8, 2, 11, 13, 13, pe_input=8, pe_target=8)
    return model, (IDS, IDS), IDS, SmoothedCrossentropy(), MaskedAccuracy()


def classifier():
    model = BertForSequenceClassification(BertConfig(13, 8, 1, 2, 11, labels=("a", "b")))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, {"input_ids": IDS}, tf.constant([0, 1]), loss, "accuracy"


@pytest.mark.slow
@pytest.mark.parametrize("made, traces", [(translator, 1), (classifier, 2)])  # 2: a metric's name
def test_the_step_is_traced_once(made, traces, monkeypatch):
    model, inputs, labels, loss, metric = made()
    steps, train_step = [], model.train_step
    monkeypatch.setattr(model, "train_step", lambda data: steps.append(1) or train_step(data))
    model.compile(keras.optimizers.Adam(), loss, metrics=[metric], jit_compile=False)
    assert not model.optimizer.built
    model.fit(inputs, labels, epochs=2, verbose=0)
    assert len(steps) == traces


@pytest.mark.slow
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


@pytest.mark.slow
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


# Exports


def language_model():
    model = LanguageModel(1, 8, 2, 11, 13, max_position=8)
    return model, IDS, IDS, SmoothedCrossentropy(), MaskedAccuracy()


def r_drop():
    model, *others = translator()
    return RDrop(model), *others


def fitted(made):
    model, inputs, labels, loss, _ = made()
    model.compile(FusedAdam(1e-2), loss, jit_compile=False)
    model.fit(inputs, labels, verbose=0)
    return model, inputs


def texts(*ids):
    ids = tf.constant(ids)
    return {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}


# Other batch sizes and lengths than those of `fit`.
CALLS = {
    translator: (tf.constant([[3, 1, 2, 7, 4]]), tf.constant([[1, 5, 9]])),
    language_model: tf.constant([[3, 1, 2, 7, 4]]),
    classifier: texts([3, 1, 2, 7, 4]),
    r_drop: (tf.constant([[3, 1, 2, 7, 4]]), tf.constant([[1, 5, 9]])),
}


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("made", CALLS)
def test_exported_after_fit(made, tmp_path):
    model, _ = fitted(made)
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(loaded.serve(CALLS[made]), model(CALLS[made]), atol=1e-6)


@pytest.mark.slow
def test_exported_without_a_call(tmp_path):
    model = TwoTowers(SentenceEncoder(BertConfig(13, 8, 1, 2, 11)))
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    inputs = texts([3, 1, 2], [7, 4, 4]), texts([3, 1], [7, 5])
    np.testing.assert_allclose(loaded.serve(inputs), model(inputs), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("made", [language_model, r_drop])
def test_exported_after_loading(made, tmp_path):
    fitted(made)[0].save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(loaded.serve(CALLS[made]), model(CALLS[made]), atol=1e-6)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("made", [language_model, classifier, r_drop])
def test_saved_by_tensorflow_after_fit(made, tmp_path):
    model, _ = fitted(made)
    tf.saved_model.save(model, tmp_path / "saved")
    loaded = tf.saved_model.load(tmp_path / "saved")
    served = loaded.signatures["serving_default"]
    specs = served.structured_input_signature[1]
    assert {(spec.dtype, spec.shape.rank) for spec in specs.values()} == {(tf.int32, 2)}
    call = CALLS[made]
    if made is r_drop:
        call = dict(zip(("inp", "tar"), call, strict=True))
    [output] = served(**(call if isinstance(call, dict) else {"ids": call})).values()
    np.testing.assert_allclose(output, model(CALLS[made]), atol=1e-6)
    # Each weight once, and each of the optimizer's.
    stored = tf.train.list_variables(str(tmp_path / "saved" / "variables" / "variables"))
    assert sum(shape == [13, 8] for _, shape in stored) == 3 * sum(
        tuple(weight.shape) == (13, 8) for weight in model.weights
    )


# Files


@pytest.mark.parametrize("name", ["m.h5", "m.hdf5", "m.tf", "folder", "m.weights.h5"])
def test_a_file_that_cannot_be_loaded_is_refused(name, tmp_path):
    model = translator()[0]
    model.build()
    with pytest.raises(ValueError, match=r'^filepath: expected a name that ends in "\.keras", got'):
        model.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_callback_that_would_write_one_is_refused_before_the_first_step(tmp_path):
    model, inputs, labels, loss, _ = translator()
    model.compile("sgd", loss)
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.h5")
    for arguments in ([None, 1, 0, [checkpoint]], [None, 1, 0, checkpoint]):
        with pytest.raises(ValueError, match=r"^filepath: .*\.h5"):
            model.fit(inputs, labels, *arguments)
    with pytest.raises(ValueError, match=r"^filepath: .*\.h5"):
        model.fit(inputs, labels, callbacks=[checkpoint])
    assert not model.built


@pytest.mark.slow
def test_callbacks_that_write_readable_files_work(tmp_path):
    model, inputs, labels, loss, _ = translator()
    model.compile("sgd", loss, jit_compile=False)
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "model.keras"),
        keras.callbacks.ModelCheckpoint(tmp_path / "x.weights.h5", save_weights_only=True),
    ]
    model.fit(inputs, labels, verbose=0, callbacks=callbacks)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(inputs), model(inputs))


# Frozen layers


def frozen_translator():
    _, inputs, labels, loss, _ = translator()
    model = Transformer(1, 8, 2, 11, 13, 13, pe_input=8, pe_target=8, rate=0.0)
    model.build()
    model.encoder.trainable = False
    model.encoder.enc_layers[0].mha.trainable = True
    model.decoder.dec_layers[0].layernorm2.trainable = False
    return model, inputs, labels, loss


def frozen(model):
    return [weight.trainable for weight in model.weights]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("way", ["file", "in a functional model", "in RDrop", "deepcopy"])
def test_frozen_sublayers_stay_frozen(way, tmp_path):
    model, inputs, labels, loss = frozen_translator()
    expected = frozen(model)
    assert len(set(expected)) == 2
    outer, get = model, lambda loaded: loaded
    if way == "in a functional model":
        ids = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
        outer, get = keras.Model(ids, model(ids)), lambda loaded: loaded.layers[-1]
    elif way == "in RDrop":
        outer, get = RDrop(model), lambda loaded: loaded.model
    outer.compile(FusedAdam(1e-2), loss, jit_compile=False)
    outer.fit(inputs, labels, verbose=0)
    if way == "deepcopy":
        loaded = copy.deepcopy(outer)
    else:
        outer.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert frozen(get(loaded)) == expected
    assert len(loaded.trainable_weights) == len(outer.trainable_weights)
    for one, other in zip(loaded.optimizer.variables, outer.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, other)
    # The next step is the same, and leaves what is frozen.
    before = get(loaded).encoder.embedding.get_weights()
    for each in (outer, loaded):
        each.fit(inputs, labels, verbose=0)
    for one, other in zip(loaded.get_weights(), outer.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_array_equal(get(loaded).encoder.embedding.get_weights(), before)


def test_a_frozen_model_can_be_thawed_after_loading(tmp_path):
    model = translator()[0]
    model.build()
    model.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not loaded.trainable_weights and not loaded.encoder.trainable_weights
    loaded.trainable = True
    assert len(loaded.trainable_weights) == len(loaded.weights)


def test_an_unknown_frozen_sublayer_is_refused():
    model = translator()[0]
    with pytest.raises(ValueError, match="^trainable: expected a sublayer of Encoder among"):
        model.build_from_config({"shapes_dict": {}, "trainable": {"encoder/enc_layers.1": False}})


# What a subclass adds, and what is refused


@keras.saving.register_keras_serializable(package="tests")
class WithHead(Transformer):
    """A layer as a user would write it, without `build`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.head = keras.layers.Dense(13)

    def call(self, inputs, training=None):
        return self.head(super().call(inputs, training))


@keras.saving.register_keras_serializable(package="tests")
class Plain(keras.Model):
    """Keras does not know its weights before a call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding, self.head = keras.layers.Embedding(13, 8), keras.layers.Dense(13)

    def call(self, inputs):
        return self.head(self.embedding(inputs[0]))


@pytest.mark.one_of(10)
@pytest.mark.parametrize("within", [lambda model: model, RDrop], ids=["alone", "RDrop"])
@pytest.mark.parametrize(
    "make",
    [lambda: WithHead(1, 8, 2, 11, 13, 13, pe_input=8, pe_target=8), Plain],
    ids=["of a Transformer", "of Keras's"],
)
def test_layers_of_a_subclass_are_trained_saved_and_loaded(make, within, tmp_path):
    """Loaded, the head once had new random weights, without a message."""
    model = within(make())
    model.compile("adam", SmoothedCrossentropy(), jit_compile=False)
    model.fit((IDS, IDS), IDS, verbose=0)
    assert len(model.optimizer.variables) == 2 + 2 * len(model.trainable_weights)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again((IDS, IDS)), model((IDS, IDS)))
    np.testing.assert_array_equal(again.get_weights()[-1], model.get_weights()[-1])


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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "copied",
    [
        lambda model, folder: model.save(folder / "model.keras"),
        lambda model, folder: model.save_weights(folder / "model.weights.h5"),
        lambda model, folder: copy.deepcopy(model),
    ],
    ids=["save", "save_weights", "deepcopy"],
)
def test_a_quantized_model_is_not_copied_into_what_nothing_reads(copied, tmp_path):
    model = translator()[0]
    model.build()
    with pytest.raises(ValueError, match="model: expected float weights.* quantize it again"):
        copied(quantized(model), tmp_path)
    assert not (tmp_path / "model.keras").exists()


@pytest.mark.parametrize("shape", [(None, 16), ((None, 16),), {"inp": (None, 16)}])
def test_other_shapes_to_build_with_are_refused(shape):
    with pytest.raises(ValueError, match="input_shape: expected the shapes of .inp, tar."):
        translator()[0].build(shape)


def test_other_backends_of_keras_are_refused_at_once():
    program = "from tf_transformer import Transformer"
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert b"KERAS_BACKEND: expected tensorflow" in run.stderr and b"got jax" in run.stderr
