"""A model with more rows of embeddings has the weights of the model that it was made from."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import Architecture, LanguageModel, Transformer, bert, with_vocab_size
from tf_transformer.compression.quantization import quantized

pytestmark = pytest.mark.one_of(10, "parts")

V, MORE = 13, 17
IDS = tf.constant([[2, 7, 3, 0, 0], [1, 12, 5, 4, 2]])
NEW_IDS = tf.constant([[2, 16, 3, 0, 0], [1, 13, 5, 14, 15]])
CONFIG = bert.BertConfig(V, 8, 2, 2, 16, labels=("a", "b", "c"))
ALBERT = bert.BertConfig(V, 8, 2, 2, 16, embedding_size=6, num_hidden_groups=1, labels=("a", "b"))
NARROW = Architecture(embedding_size=3)
MODELS = {
    "shared": lambda: Transformer(1, 8, 2, 16, V, V, 9, 9, share_embeddings=True),
    "apart": lambda: Transformer(1, 8, 2, 16, V, V, 9, 9),
    "factorized": lambda: Transformer(1, 8, 2, 16, V, V, 9, 9, architecture=NARROW),
    "language model": lambda: LanguageModel(1, 8, 2, 16, V, 9),
    "language model, factorized": lambda: LanguageModel(1, 8, 2, 16, V, 9, architecture=NARROW),
    **{
        cls.__name__: lambda cls=cls: cls(CONFIG)
        for cls in (
            bert.Bert,
            bert.BertForMaskedLM,
            bert.BertForPreTraining,
            bert.BertForQuestionAnswering,
            bert.BertForSequenceClassification,
            bert.BertWithExits,
            bert.SentenceEncoder,
            bert.UniLM,
        )
    },
    "ALBERT": lambda: bert.BertForMaskedLM(ALBERT),
    "float16": lambda: bert.BertForMaskedLM(CONFIG, dtype="mixed_float16"),
    "bfloat16": lambda: LanguageModel(1, 8, 2, 16, V, 9, dtype="mixed_bfloat16"),
}


def made(name):
    model = MODELS[name]()
    model.build()
    return randomize(model, 3)


def inputs_of(model, ids):
    if isinstance(model, Transformer):
        return ids, ids[:, 1:]
    return ids if isinstance(model, LanguageModel) else {"input_ids": ids}


def outputs_of(model, ids):
    outputs = model(inputs_of(model, ids), training=False)
    return [tf.cast(output, tf.float32).numpy() for output in tf.nest.flatten(outputs)]


def shared_part(output):
    return output[..., :V] if output.shape[-1] == MORE else output


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_smaller_model(name):
    model = made(name)
    before = [weight.numpy() for weight in model.weights]
    larger = with_vocab_size(model, MORE)
    assert type(larger) is type(model) and larger.dtype_policy == model.dtype_policy
    sizes = {MORE if size == V else size for w in model.weights for size in w.shape}
    assert {size for w in larger.weights for size in w.shape} == sizes
    has_logits = False
    for output, expected in zip(outputs_of(larger, IDS), outputs_of(model, IDS), strict=True):
        np.testing.assert_allclose(shared_part(output), expected, rtol=1e-6, atol=1e-6)
        has_logits |= output.shape[-1] == MORE
    assert has_logits == any(output.shape[-1] == V for output in outputs_of(model, IDS))
    assert all(np.isfinite(output).all() for output in outputs_of(larger, NEW_IDS))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", ["shared", "factorized", "language model", "ALBERT", "float16"])
def test_further_rows_are_drawn_as_in_a_new_model(name):
    model = made(name)
    larger = with_vocab_size(model, 1000)
    new = type(model).from_config(larger.get_config())
    new.build()
    for weight, fresh, old in zip(larger.weights, new.weights, model.weights, strict=True):
        if weight.shape != old.shape:
            [axis] = np.flatnonzero(np.array(weight.shape) != np.array(old.shape))
            added, whole = (np.delete(w.numpy(), range(V), axis) for w in (weight, fresh))
            assert added.std() == pytest.approx(whole.std(), rel=0.1)
            np.testing.assert_array_equal(np.take(weight, range(V), axis), old)


def test_a_larger_language_model_ties_the_new_rows_too():
    larger = with_vocab_size(made("language model"), MORE)
    states = tf.random.normal((2, 3, 8), seed=5)
    table = larger.decoder.embedding.embedding.embeddings.numpy()
    np.testing.assert_allclose(larger.logits(states), states @ table.T, rtol=1e-5, atol=1e-5)
    assert sum(V in w.shape or MORE in w.shape for w in larger.weights) == 1


def test_two_vocabularies_of_a_translator():
    model = Transformer(1, 8, 2, 16, V, 11, 9, 9)
    model.build()
    larger = with_vocab_size(model, V, 19)
    assert larger((IDS, IDS[:, :3])).shape == (2, 3, 19)
    config = with_vocab_size(model, 23).get_config()
    assert (config["input_vocab_size"], config["target_vocab_size"]) == (23, 23)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", ["shared", "language model", "BertForMaskedLM", "ALBERT"])
def test_a_larger_model_is_saved_and_loaded(name, tmp_path):
    larger = with_vocab_size(made(name), MORE)
    expected = outputs_of(larger, NEW_IDS)
    larger.save(tmp_path / "model.keras")
    larger.save_weights(tmp_path / "model.weights.h5")
    other = type(larger).from_config(larger.get_config())
    other.build()
    other.load_weights(tmp_path / "model.weights.h5")
    models = [keras.models.load_model(tmp_path / "model.keras"), other]
    if hasattr(larger, "save_pretrained"):
        larger.save_pretrained(tmp_path / "folder")
        models.append(type(larger).from_pretrained(tmp_path / "folder"))
    for model in models:
        for output, wanted in zip(outputs_of(model, NEW_IDS), expected, strict=True):
            np.testing.assert_allclose(output, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", ["apart", "language model", "BertForMaskedLM"])
def test_the_new_rows_are_trained(name):
    larger = with_vocab_size(made(name), MORE)
    tables = [w for w in larger.trainable_weights if w.shape[0] == MORE and len(w.shape) == 2]
    before = [table.numpy() for table in tables]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    larger.compile(keras.optimizers.Adam(0.1), loss, jit_compile=False)
    labels = NEW_IDS[:, 1:] if name == "apart" else NEW_IDS
    larger.fit(inputs_of(larger, NEW_IDS), labels, epochs=1, verbose=0)
    for table, value in zip(tables, before, strict=True):
        assert (np.abs(table.numpy() - value)[V:].max(axis=-1) > 0.01).all()


def test_what_was_frozen_stays_frozen(tmp_path):
    model = made("BertForSequenceClassification")
    model.bert.trainable = False
    larger = with_vocab_size(model, MORE)
    larger.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    names = [[w.path for w in one.trainable_weights] for one in (model, larger, loaded)]
    assert names[0] == names[1] == names[2] and len(names[0]) == 2


def test_what_cannot_be_enlarged_is_refused():
    model = made("language model")
    for size in (V - 1, 0, "17", 17.0, None):
        with pytest.raises(ValueError, match="vocab_size: expected an integer of at least 13"):
            with_vocab_size(model, size)
    with pytest.raises(ValueError, match="target_vocab_size: expected an integer of at least 13"):
        with_vocab_size(made("apart"), MORE, 12)
    with pytest.raises(ValueError, match="target_vocab_size: expected None for a LanguageModel"):
        with_vocab_size(model, MORE, MORE)
    with pytest.raises(ValueError, match="share_embeddings: expected one joint vocabulary"):
        with_vocab_size(made("shared"), MORE, MORE + 1)
    with pytest.raises(ValueError, match="model: expected a built model"):
        with_vocab_size(LanguageModel(1, 8, 2, 16, V, 9), MORE)
    for name in ("language model", "BertForSequenceClassification"):
        with pytest.raises(ValueError, match="model: expected weights in floating point, got int8"):
            with_vocab_size(quantized(made(name)), MORE)
    towers = bert.TwoTowers(bert.SentenceEncoder(CONFIG))
    towers.build()
    for other in (towers, keras.Sequential([keras.layers.Dense(2)])):
        with pytest.raises(ValueError, match="model: expected a Transformer, a LanguageModel or"):
            with_vocab_size(other, MORE)
