"""Labels and weights as people bring them from Keras and Hugging Face: right, or refused.

Axes: B batch, T length, V classes. The references are Keras and NumPy in float64.
"""

import keras
import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from loading import close
from tiny_bert import CONFIG, randomised

from tf_transformer import MaskedAccuracy, Perplexity, SmoothedCrossentropy, TokenCrossentropy, bert
from tf_transformer.compression import Distiller
from tf_transformer.training import RDrop

pytestmark = pytest.mark.one_of(3, "core")

B, T, V = 5, 5, 7  # B = T: a weight for each row must not be taken for one of each position
rng = np.random.default_rng(1)
CLASSES, CLASS_LOGITS = rng.integers(0, V, B), rng.normal(size=(B, V)).astype("float32")
TOKENS = np.where(np.arange(T) < [[5], [2], [4], [1], [3]], rng.integers(1, V, (B, T)), 0)
LOGITS = rng.normal(size=(B, T, V)).astype("float32")
# Hugging Face's labels of one text for named entities, and logits.
ENTITIES = np.array([[-100, 0, 0, 1, 2, -100]])
ENTITY_LOGITS = (np.random.default_rng(0).normal(size=(1, 6, 3)) * 3).astype("float32")


def of_keras(labels, logits, weights=None, ignored=None):
    """Loss and accuracy of Keras."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
    counted = (np.asarray(labels) != ignored) * (1.0 if weights is None else weights)
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    return loss(labels, logits, weights), accuracy(labels, logits, counted)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("kind", ["classes", "tokens"])
def test_shapes_and_types_of_labels(kind, column, dtype):
    labels, logits, ignored = (
        (CLASSES, CLASS_LOGITS, None) if kind == "classes" else (TOKENS, LOGITS, 0)
    )
    loss, accuracy = of_keras(labels, logits, ignored=ignored)
    close(loss, ref.weighted_cross_entropy(labels, logits, ignored=ignored)[0])
    given = labels[..., None] if column else labels
    for objects, expected in (
        ((SmoothedCrossentropy(0.0), TokenCrossentropy()), loss),
        ((MaskedAccuracy(),), accuracy),
        ((Perplexity(),), np.exp(loss)),
    ):
        for one in objects:
            close(one(given.astype(dtype), logits), expected)


def test_shapes_that_a_graph_does_not_know():
    loss = SmoothedCrossentropy(0.0)
    for labels, logits in ((CLASSES, CLASS_LOGITS), (TOKENS, LOGITS)):
        spec = tf.TensorSpec([None] * logits.ndim), tf.TensorSpec([None] * labels.ndim, tf.int64)
        known = tf.function(loss, input_signature=spec[::-1])
        close(known(labels, logits), loss(labels, logits))
        for unknown in (None, [None] * logits.ndim):
            spec = tf.TensorSpec(unknown, tf.int64), tf.TensorSpec([None] * logits.ndim)
            graph = tf.function(loss, input_signature=spec)
            close(graph(labels[..., None], logits), loss(labels, logits))
    for wrong in (TOKENS[:, :1], TOKENS[:1], TOKENS[:, :4]):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="expected the shape of y_pred|Reshape"
        ):
            known(wrong, LOGITS)


@pytest.mark.parametrize(
    "shape", [(B,), (B, 1), (B, T), (B, T, 1)], ids=["row", "rows", "label", "labels"]
)
def test_weights(shape):
    weights = rng.uniform(0.1, 2, shape).astype("float32")
    by_row = weights.reshape(B, -1)
    loss, mean = ref.weighted_cross_entropy(TOKENS, LOGITS, by_row, ignored=0)
    if shape != (B,):  # Keras's loss takes these for weights of positions, its metrics do not
        close(of_keras(TOKENS, LOGITS, weights, ignored=0)[0] if len(shape) < 3 else loss, loss)
    hits = (LOGITS.argmax(-1) == TOKENS) * (TOKENS > 0) * by_row
    close(SmoothedCrossentropy(0.0)(TOKENS, LOGITS, weights), loss)
    close(TokenCrossentropy()(TOKENS, LOGITS, weights), mean)
    close(MaskedAccuracy()(TOKENS, LOGITS, weights), hits.sum() / (by_row * (TOKENS > 0)).sum())
    graph = tf.function(
        SmoothedCrossentropy(0.0),
        input_signature=[
            tf.TensorSpec((None, None), tf.int64),
            tf.TensorSpec((None, None, V)),
            tf.TensorSpec([None] * len(shape)),
        ],
    )
    close(graph(TOKENS, LOGITS, weights), loss)


@pytest.mark.parametrize("shape", [(B,), (B, 1)])
@pytest.mark.parametrize("column", [False, True])
def test_weights_of_classes(shape, column):
    weights = rng.uniform(0.1, 2, B).astype("float32")
    loss, accuracy = of_keras(CLASSES, CLASS_LOGITS, weights)
    labels, weights = CLASSES[:, None] if column else CLASSES, weights.reshape(shape)
    close(SmoothedCrossentropy(0.0)(labels, CLASS_LOGITS, weights), loss)
    close(MaskedAccuracy()(labels, CLASS_LOGITS, weights), accuracy)


def test_a_weight_for_each_row_where_rows_are_as_many_as_positions():
    """Issue: 0.2 by the wrong axis; Keras 1.0."""
    logits = np.eye(V, dtype="float32")[np.where(np.arange(B)[:, None] == 2, TOKENS, 0)]
    labels, weights = np.where(TOKENS == 0, 1, TOKENS), np.array([0, 0, 1, 0, 0], "float32")
    logits[2] = np.eye(V)[labels[2]]
    assert float(MaskedAccuracy()(labels, logits, weights)) == 1.0
    assert float(keras.metrics.SparseCategoricalAccuracy()(labels, logits, weights)) == 1.0


def test_other_reductions_are_those_of_keras():
    weights = rng.uniform(0.1, 2, (B, T)).astype("float32")
    for reduction in ("sum", "mean", "mean_with_sample_weight", None):
        expected = keras.losses.SparseCategoricalCrossentropy(
            True, ignore_class=0, reduction=reduction
        )(TOKENS, LOGITS, weights)
        if reduction == "mean_with_sample_weight":
            expected = ref.weighted_cross_entropy(TOKENS, LOGITS, weights, ignored=0)[1]
        close(SmoothedCrossentropy(0.0, reduction=reduction)(TOKENS, LOGITS, weights), expected)


@pytest.mark.parametrize(
    "labels, message",
    [
        (
            np.eye(V)[TOKENS],
            r"y_true: expected the shape of y_pred \(5, 5, 7\).* got \(5, 5, 7\).*",
        ),
        (TOKENS[:, :4], r"got \(5, 4\)"),
        (TOKENS[:1], r"got \(1, 5\)"),
        (CLASSES, r"got \(5,\)"),
        (TOKENS + 0.5, "y_true: expected whole numbers from 0 to 6, .* got 0.5, 1.5"),
        (np.where(TOKENS == 0, np.nan, TOKENS), "whole numbers .* got nan"),
        (TOKENS.astype("float16"), "expected integers, or float32 .* got float16"),
        (np.array([["a"] * T] * B), "expected integers, .* got string"),
        (
            tf.ragged.constant([[1, 2], [3]]),
            "dense tensor, got a ragged one. Pass y_true.to_tensor",
        ),
    ],
)
def test_labels_that_are_refused(labels, message):
    for one in (SmoothedCrossentropy(), MaskedAccuracy(), TokenCrossentropy()):
        with pytest.raises(ValueError, match=message):
            one(labels, LOGITS)


@pytest.mark.parametrize("shape", [(T + 1,), (1, T), (B, T - 1), (B, T, V), (B, B, T, 1)])
def test_weights_that_are_refused(shape):
    for one in (SmoothedCrossentropy(), MaskedAccuracy()):
        with pytest.raises(ValueError, match=r"sample_weight: expected .*\(5, 5\), got \("):
            one(TOKENS, LOGITS, np.ones(shape, "float32"))


@pytest.mark.parametrize("ignore_class", ["none", 1.0, True])
def test_an_ignore_class_that_is_refused(ignore_class):
    for one in (SmoothedCrossentropy, MaskedAccuracy, TokenCrossentropy, Perplexity):
        with pytest.raises(ValueError, match='ignore_class: expected an int, None or "auto"'):
            one(ignore_class=ignore_class)


def test_named_entities():
    loss = SmoothedCrossentropy(0.0, ignore_class=-100)(ENTITIES, ENTITY_LOGITS)
    close(loss, of_keras(ENTITIES, ENTITY_LOGITS, ignored=-100)[0])
    close(loss, 1.690, 1e-3)
    assert float(MaskedAccuracy(ignore_class=-100)(ENTITIES, ENTITY_LOGITS)) == 0.25
    close(TokenCrossentropy(ignore_class=-100)(ENTITIES, ENTITY_LOGITS), loss)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("wrapped", ["alone", "RDrop", "Distiller"])
def test_a_token_classifier_leaves_out_the_labels_of_hugging_face(wrapped, tmp_path):
    """`fit` without a word about -100: class 0 counts, and all losses agree on what counts."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = bert.BertConfig(**{**vars(CONFIG), **off, "labels": ("O", "PER", "LOC")})
    inner = randomised(bert.BertForTokenClassification(config))
    model = {
        "alone": lambda: inner,
        "RDrop": lambda: RDrop(inner, 5.0),  # without dropout, the passes agree
        "Distiller": lambda: Distiller(inner, inner, soft_targets=0.5),
    }[wrapped]()
    loss, accuracy = SmoothedCrossentropy(0.0), MaskedAccuracy()
    model.compile("sgd", loss, metrics=[accuracy], jit_compile=False)
    assert (model.loss.ignore_class, accuracy.ignore_class) == (-100, -100)
    ids = {"input_ids": np.array([[2, 5, 6, 7, 8, 3]])}
    logits = inner(ids).numpy()
    expected = ref.weighted_cross_entropy(ENTITIES, logits, ignored=-100)[0]
    found = model.train_on_batch(ids, ENTITIES, return_dict=True)
    close(found["loss"], expected * (0.5 if wrapped == "Distiller" else 1))
    close(found["accuracy"], (logits.argmax(-1) == ENTITIES)[ENTITIES >= 0].mean())
    if wrapped == "alone":
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        assert again.loss.ignore_class == -100
        np.testing.assert_allclose(
            again.test_on_batch(ids, ENTITIES), model.test_on_batch(ids, ENTITIES), rtol=1e-6
        )


@pytest.mark.parametrize("wrong", [V, 99, -1, -5, -100])
def test_labels_out_of_range(wrong):
    labels = TOKENS.copy()
    labels[1, 1] = wrong
    loss = SmoothedCrossentropy(0.1)
    objects = loss, MaskedAccuracy(), TokenCrossentropy(), Perplexity()
    for one in objects:
        with pytest.raises(ValueError, match=rf"y_true: expected .* 0 to 6, .* got {wrong}\."):
            one(labels, LOGITS)
        with pytest.raises(tf.errors.InvalidArgumentError, match="whole numbers from 0 to 6"):
            tf.function(one.update_state if hasattr(one, "update_state") else one)(labels, LOGITS)

    @tf.function(jit_compile=True)
    def compiled(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(tf.constant(labels), logits)
        return value, tape.gradient(value, logits)

    value, gradient = compiled(LOGITS)
    assert np.isnan(value) and np.isnan(gradient[1, 1]).all()


def test_large_labels_do_not_wrap_around():
    for dtype in (np.int64, np.uint32):
        labels = np.full(B, 2**32 - 7 if dtype is np.uint32 else 2**32 + 1, dtype)
        with pytest.raises(ValueError, match="got 429496"):
            SmoothedCrossentropy()(labels, CLASS_LOGITS)


def test_fit_stops_at_a_label_out_of_range():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile("sgd", SmoothedCrossentropy(0.0), jit_compile=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected whole numbers from 0 to 2"):
        model.fit(np.ones((4, 3)), np.array([0, 1, 9, 2]), verbose=0)


@pytest.mark.slow
def test_fit_with_a_column_of_labels_and_with_class_weights():
    def losses(loss, y):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(V)])
        model.compile("sgd", loss, metrics=[MaskedAccuracy()], jit_compile=False)
        x = np.arange(3 * B).reshape(B, 3) / 7
        options = {"epochs": 2, "verbose": 0, "shuffle": False}
        found = model.fit(x, y, **options).history["loss"]
        return (
            found
            + model.fit(
                x, y, class_weight={0: 1.0, **dict.fromkeys(range(1, V), 3.0)}, **options
            ).history["loss"]
        )

    expected = losses(keras.losses.SparseCategoricalCrossentropy(from_logits=True), CLASSES)
    for y in (CLASSES, CLASSES[:, None], CLASSES.astype("float32")):
        np.testing.assert_allclose(losses(SmoothedCrossentropy(0.0), y), expected, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_keras_mask_and_padding(weighted):
    """Blocked positions with a label leave the sum and the number; so do labels of padding."""
    mask = tf.constant(np.arange(T) < [[3], [5], [2], [1], [4]])
    logits, weights = tf.constant(LOGITS), rng.uniform(0.1, 2, (B, T)).astype("float32")
    logits._keras_mask = mask
    both = np.where(mask, TOKENS, 0)
    weights = weights if weighted else None
    expected = ref.weighted_cross_entropy(
        both, LOGITS, 1.0 if weights is None else weights, ignored=0
    )
    keras_loss = keras.losses.SparseCategoricalCrossentropy(True, ignore_class=0)
    close(SmoothedCrossentropy(0.0)(TOKENS, logits, weights), expected[0])
    close(keras_loss(TOKENS, logits, weights), expected[0])
    close(TokenCrossentropy()(TOKENS, logits, weights), expected[1])
    accuracy = MaskedAccuracy()(TOKENS, LOGITS, (both > 0) * (1.0 if weights is None else weights))
    close(MaskedAccuracy()(TOKENS, logits, weights), accuracy)
    outside = np.where(mask, TOKENS, 99)  # what is blocked is not looked at
    close(SmoothedCrossentropy(0.0)(outside, logits, weights), expected[0])


def test_a_keras_mask_reaches_the_loss_in_fit():
    ids = np.array([[3, 4, 1, 0, 0], [2, 0, 0, 0, 0]])
    labels = np.array([[1, 0, 2, 5, 6], [3, 4, 4, 4, 4]])  # as nobody should, under the mask too
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(
        inputs, keras.layers.Dense(V)(keras.layers.Embedding(9, 4, mask_zero=True)(inputs))
    )
    expected, _ = ref.weighted_cross_entropy(
        np.where(ids, labels, 0), model(ids).numpy(), ignored=0
    )
    for loss in (
        SmoothedCrossentropy(0.0),
        keras.losses.SparseCategoricalCrossentropy(True, ignore_class=0),
    ):
        model.compile(
            "sgd", loss, metrics=[TokenCrossentropy(), MaskedAccuracy()], jit_compile=False
        )
        found = model.evaluate(ids, labels, verbose=0, return_dict=True)
        close(found["loss"], expected)
        close(found["token_loss"], expected)
    assert found["accuracy"] == float(
        MaskedAccuracy()(np.where(ids, labels, 0), model(ids).numpy())
    )


def test_a_mask_of_another_shape_is_refused():
    logits = tf.constant(CLASS_LOGITS)
    logits._keras_mask = tf.ones((B, T), tf.bool)
    with pytest.raises(ValueError, match=r"the Keras mask of y_pred: .*\(5, 7\).* got \(5, 5\)"):
        SmoothedCrossentropy()(CLASSES, logits)


def test_predictions_that_are_not_finite():
    nan = np.full_like(CLASS_LOGITS, np.nan)
    one = np.where(np.arange(V) == 3, np.nan, 20 * np.eye(V, dtype="float32")[CLASSES])
    for logits in (nan, one):
        assert float(MaskedAccuracy()(0 * CLASSES, logits)) == 0.0  # argmax of NaN is 0
        assert float(MaskedAccuracy()(CLASSES, logits)) == 0.0
        assert np.isnan(SmoothedCrossentropy()(CLASSES, logits))
    blocked = np.where(np.arange(V) == 0, -np.inf, LOGITS)
    close(
        SmoothedCrossentropy(0.0)(TOKENS, blocked),
        ref.weighted_cross_entropy(TOKENS, np.where(np.arange(V) == 0, -1e9, LOGITS), ignored=0)[0],
    )
    hole = tf.constant(np.where((TOKENS == 0)[..., None], np.nan, LOGITS))
    with tf.GradientTape() as tape:
        tape.watch(hole)
        loss = SmoothedCrossentropy(0.1)(TOKENS, hole)
    close(loss, SmoothedCrossentropy(0.1)(TOKENS, LOGITS))
    gradient = tape.gradient(loss, hole).numpy()
    assert np.isfinite(gradient).all() and (gradient[TOKENS == 0] == 0).all()


def test_no_rows_and_no_labels_that_count():
    for labels, logits in ((TOKENS[:0], LOGITS[:0]), (0 * TOKENS, LOGITS)):
        assert float(SmoothedCrossentropy()(labels, logits)) == 0.0
        assert float(MaskedAccuracy()(labels, logits)) == 0.0
        for metric in (TokenCrossentropy(), Perplexity()):
            assert np.isnan(metric(labels, logits))  # the mean of nothing
            metric.update_state(TOKENS, LOGITS)
            assert np.isfinite(metric.result())
