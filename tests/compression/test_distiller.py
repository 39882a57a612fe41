"""A student learns from its teacher by `fit`; its loss is the sum of the parts."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import Transformer
from tf_transformer.bert import (
    Bert,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
)
from tf_transformer.compression import Distiller
from tf_transformer.compression.distiller import (
    attention_loss,
    hidden_state_loss,
    soft_target_loss,
)
from tf_transformer.distribution import pad_labels, pad_rows
from tf_transformer.training import SmoothedCrossentropy

pytestmark = pytest.mark.one_of(10, "parts")

RNG = np.random.default_rng(7)
MASK = (np.arange(7) < np.array([[7], [4], [1], [6]])).astype(int)
X = {"input_ids": RNG.integers(1, 19, (4, 7)), "attention_mask": MASK}
Y = np.array([2, 0, 1, 1])
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def bert(layers, width=8, cls=BertForSequenceClassification, heads=2, problem_type=None):
    fields = {"labels": ("a", "b", "c"), "problem_type": problem_type, **NO_DROPOUT}
    config = BertConfig(19, width, layers, heads, 16, **fields)
    model = cls(config)
    model.build()
    return randomize(model, layers + width)


def compiled(distiller, rate=0.1):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    distiller.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    return distiller


@pytest.mark.slow
@pytest.mark.parametrize("width", [8, 6])
def test_the_loss_of_classifiers(width):
    student, teacher = bert(2, width), bert(4)
    options = {"temperature": 3.0, "soft_targets": 0.3, "hidden_states": 0.7, "attention": 0.2}
    distiller = compiled(Distiller(student, teacher, **options))
    project = (lambda x: x) if width == 8 else distiller.projection
    ours, theirs = (
        model.bert(X, return_hidden_states=True, return_attentions=True)
        for model in (student, teacher)
    )
    logits, taught = student(X), teacher(X)
    expected = 0.7 * keras.losses.sparse_categorical_crossentropy(Y, logits, from_logits=True)
    expected = tf.reduce_mean(expected) + 0.3 * soft_target_loss(logits, taught, 3.0)
    for layer, by in ((0, 0), (1, 2), (2, 4)):
        states = project(ours["hidden_states"][layer]), theirs["hidden_states"][by]
        expected += 0.7 * hidden_state_loss(*states, MASK)
        if layer:
            weights = ours["attentions"][layer - 1], theirs["attentions"][by - 1]
            expected += 0.2 * attention_loss(*weights, MASK)
    before = [weight.numpy() for weight in teacher.weights]
    found = distiller.train_on_batch(X, Y, return_dict=True)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    assert set(found) == {"loss", "accuracy"}
    for weight, value in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert len(distiller.trainable_variables) == len(student.trainable_variables) + (width == 6)


@pytest.mark.parametrize("weights", [None, np.array([0.5, 2.0, 0.0, 1.5])])
def test_rows_of_padding_do_not_count_and_weights_do(weights):
    options = {"temperature": 3.0, "soft_targets": 0.3, "hidden_states": 0.7, "attention": 0.2}
    teacher, found = bert(4), []
    inputs = {name: tf.constant(ids) for name, ids in X.items()}
    for multiple in (1, 3):
        distiller = Distiller(bert(2), teacher, **options)
        distiller.compile(keras.optimizers.SGD(0.0), SmoothedCrossentropy(0.0))
        x, y = pad_rows(inputs, multiple), pad_labels(tf.constant(Y), multiple)
        w = None if weights is None else pad_rows(tf.constant(weights), multiple)
        assert len(y) == 4 + 2 * (multiple == 3)
        found.append(distiller.train_on_batch(x, y, w))
    np.testing.assert_allclose(*found, rtol=1e-5)
    of_rows = []  # each alone
    for n in range(4):
        distiller = Distiller(bert(2), teacher, **(options | {"hidden_states": 0, "attention": 0}))
        distiller.compile(keras.optimizers.SGD(0.0), SmoothedCrossentropy(0.0))
        x = {name: ids[n : n + 1] for name, ids in X.items()}
        of_rows.append(distiller.train_on_batch(x, Y[n : n + 1]))
    distiller = Distiller(bert(2), teacher, **(options | {"hidden_states": 0, "attention": 0}))
    distiller.compile(keras.optimizers.SGD(0.0), SmoothedCrossentropy(0.0))
    expected = np.mean(of_rows * (1 if weights is None else weights))
    np.testing.assert_allclose(distiller.train_on_batch(X, Y, weights), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_student_becomes_its_teacher():
    student, teacher = bert(2), bert(3)
    distiller = Distiller(student, teacher, soft_targets=1.0)
    distiller.compile(keras.optimizers.Adam(0.02))
    history = distiller.fit(X, epochs=60, verbose=0).history["loss"]
    assert history[-1] < 0.05 * history[0]
    np.testing.assert_allclose(tf.nn.softmax(student(X)), tf.nn.softmax(teacher(X)), atol=0.1)
    np.testing.assert_array_equal(distiller.predict(X, verbose=0), student.predict(X, verbose=0))


@pytest.mark.slow
def test_encoders_have_no_labels(tmp_path):
    student, teacher = bert(2, 6, Bert), bert(4, 8, Bert)
    distiller = Distiller(student, teacher, hidden_states=1.0, layer_map={1: 3, 2: 4})
    distiller.compile(keras.optimizers.Adam(0.02))
    history = distiller.fit(X, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.7 * history[0]
    distiller.save_weights(tmp_path / "student.weights.h5")
    other = bert(2, 6, Bert)
    Distiller(other, teacher).load_weights(tmp_path / "student.weights.h5")
    expected = student(X)["sequence_output"]
    np.testing.assert_array_equal(other(X)["sequence_output"], expected)


def test_its_config_makes_the_same():
    distiller = Distiller(bert(2), bert(4), temperature=2.0, hidden_states=0.5)
    again = Distiller.from_config(distiller.get_config())
    assert again.layer_map == {0: 0, 1: 2, 2: 4} and again.temperature == 2.0
    assert (again.soft_targets, again.hidden_states, again.attention) == (0.5, 0.5, 0.0)
    assert again.student.config == distiller.student.config
    assert again.get_config()["teacher"] == distiller.get_config()["teacher"]


@pytest.mark.slow
def test_words_of_translations():
    student, teacher = (
        Transformer(layers, 8, 2, 16, 11, 13, 20, 20, rate=0.0) for layers in (1, 2)
    )
    for seed, model in enumerate((student, teacher)):
        model.build()
        randomize(model, seed)
    inp, tar, y = RNG.integers(1, 11, (3, 7)), RNG.integers(1, 13, (3, 5)), np.ones((3, 5), int)
    y[0, 2:] = 0
    distiller = Distiller(student, teacher, soft_targets=1.0)
    distiller.compile(keras.optimizers.SGD(0.0))
    found = distiller.train_on_batch((inp, tar), y)
    logits = [model((inp, tar), training=False) for model in (student, teacher)]
    np.testing.assert_allclose(found, soft_target_loss(*logits, 1.0, y != 0), rtol=1e-5)


def test_one_tensor_of_logits():
    models = (bert(layers, cls=BertForQuestionAnswering) for layers in (2, 3))
    distiller = compiled(Distiller(*models))
    with pytest.raises(ValueError, match="student: expected one tensor of logits .*, got a dict"):
        distiller.train_on_batch(X, Y)


@pytest.mark.parametrize(
    ("student", "options", "message"),
    [
        (bert(2), {"temperature": 0}, "temperature: expected a number above 0, got 0"),
        (bert(2), {"soft_targets": 1.5}, r"soft_targets: expected a number in \[0, 1\], got 1.5"),
        (bert(2), {"attention": -1}, "attention: expected at least 0, got -1"),
        (bert(4), {"hidden_states": 1}, "more layers than its teacher, 4 and 3, got None"),
        (
            bert(2),
            {"attention": 1, "layer_map": {3: 1}},
            "layers of the student from 0 to 2 and of the teacher from 0 to 3, got {3: 1}",
        ),
        (bert(2, heads=4), {"attention": 1}, "as many heads in the student's layer 1 .* layer 2"),
        (bert(2, cls=BertForMaskedLM), {"attention": 1}, "got BertForMaskedLM and BertForSequenc"),
        (bert(2, cls=BertForQuestionAnswering), {"attention": 1}, "got BertForQuestionAnswering"),
        (bert(2, problem_type="regression"), {}, "soft_targets: expected 0 .*='regression'"),
        (
            bert(2, problem_type="multi_label_classification"),
            {"soft_targets": 1.0},
            "soft_targets: expected 0 .* got 1.0 for one with problem_type='multi_label_class",
        ),
    ],
)
def test_bad_input(student, options, message):
    with pytest.raises(ValueError, match=message):
        Distiller(student, bert(3), **options)
