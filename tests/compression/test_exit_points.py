"""Thresholds of early exit: what they cost, measured in one run of the model, and the choice."""

import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer.bert import BertConfig, BertForSequenceClassification, BertWithExits
from tf_transformer.compression import ExitPoint, choose_exit, exit_points

pytestmark = pytest.mark.one_of(10, "layers")

CONFIG = BertConfig(13, 24, 5, 4, 11, labels=("a", "b", "c"))


@pytest.fixture(scope="module")
def model():
    model = BertWithExits(CONFIG)
    model.build()
    return randomize(model, 4)


@pytest.fixture(scope="module")
def batches():
    """Labels are the classes of the last layer for two texts of three."""
    rng = np.random.default_rng(3)
    model = BertWithExits(CONFIG)
    model.build()
    randomize(model, 4)
    made = []
    for rows in (11, 7, 5):
        x = {"input_ids": rng.integers(1, 13, (rows, 7)).astype(np.int32)}
        answers = np.argmax(model(x), -1)[:, -1]
        made.append((x, np.where(rng.random(rows) < 0.67, answers, (answers + 1) % 3)))
    return made


@pytest.mark.slow
def test_points_are_what_exits_give(model, batches):
    labels = np.concatenate([y for _, y in batches])
    points = exit_points(model, batches)
    assert [point.patience for point in points[:5]] == [None, 1, 2, 3, 4]
    assert len({point.layers for point in points}) > 9
    for point in points[::5]:
        found = [model.exit_early(x, point.patience, point.entropy) for x, _ in batches]
        guesses = np.concatenate([np.argmax(one["logits"], -1) for one in found])
        layers = np.concatenate([one["layers"] for one in found])
        assert point.accuracy == pytest.approx((guesses == labels).mean())
        assert point.layers == pytest.approx(layers.mean())
        after_all = np.concatenate([np.argmax(model(x)[:, -1], -1) for x, _ in batches])
        assert point.changed == pytest.approx((guesses != after_all).mean())
    unlabelled = exit_points(model, [x for x, _ in batches])
    assert unlabelled == [point._replace(accuracy=None) for point in points]
    assert choose_exit(unlabelled, changed=0.0) == choose_exit(points, changed=0.0)._replace(
        accuracy=None
    )


class Rounded(BertWithExits):
    """Logits as another order of sums gives them."""

    def call(self, inputs, training=None):
        logits = super().call(inputs, training)
        return logits * (1 + tf.random.stateless_uniform(logits.shape, (1, 2), -1e-6, 1e-6))


def test_no_text_leaves_by_a_rounding_error(model, batches):
    rounded = Rounded(CONFIG)
    rounded.build()
    rounded.set_weights(model.get_weights())
    points = exit_points(model, batches)
    assert exit_points(rounded, batches, [point[:2] for point in points]) == points


def test_equal_texts_have_no_threshold_between_them(model, batches):
    (x, y), _, _ = batches
    same = [({"input_ids": np.repeat(x["input_ids"][:1], 5, 0)}, np.repeat(y[:1], 5))]
    points = exit_points(model, same)
    assert [point.patience for point in points] == [None, 1, 2, 3, 4, None, None, None]
    layers = [point.layers for point in points[5:]]
    assert layers == sorted(layers, reverse=True) and set(layers) < {1, 2, 3, 4, 5}


def test_datasets_and_sample_weights(model, batches):
    (x, y), weights = batches[0], np.ones(11)
    data = tf.data.Dataset.from_tensor_slices((x, y[:, None], weights)).batch(4)
    assert exit_points(model, data)[:5] == exit_points(model, batches[:1])[:5]


POINTS = [
    ExitPoint(None, 0.0, 0.92, 12.0, 0.0),
    ExitPoint(2, 0.0, 0.90, 5.0, 0.03),
    ExitPoint(4, 0.0, 0.93, 8.0, 0.01),
    ExitPoint(None, 0.5, 0.91, 5.0, 0.04),
]


@pytest.mark.parametrize(
    ("wish", "chosen"),
    [
        ({"accuracy": 0.92}, 2),
        ({"accuracy": 0.9}, 1),
        ({"layers": 12}, 0),
        ({"layers": 8}, 2),
        ({"layers": 7.9}, 1),
        ({"changed": 0.0}, 0),
        ({"changed": 0.02}, 2),
        ({"changed": 0.03}, 1),
    ],
)
def test_choice(wish, chosen):
    assert choose_exit(POINTS, **wish) is POINTS[chosen]


@pytest.mark.parametrize("percent", [0.7, 1.4, 2.3])
def test_shares_that_differ_by_a_rounding_error_are_equal(percent):
    """`--early-exit 0.7` of 1,000 texts: 0.7 / 100 is below 7 / 1000."""
    point = ExitPoint(2, 0.0, 1 - percent / 100, 5.0, round(10 * percent) / 1000)
    whole = ExitPoint(None, 0.0, 0.9, 12.0, 0.0)
    assert choose_exit([whole, point], changed=percent / 100) is point
    assert choose_exit([point], changed=percent / 100) is point
    assert choose_exit([point], accuracy=(1000 - round(10 * percent)) / 1000) is point


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({}, "expected one of them"),
        ({"accuracy": 0.9, "layers": 5}, "expected one of them"),
        ({"changed": -0.1}, "changed: expected at least 0.0000, the least, got -0.1"),
        ({"accuracy": 0.94}, "accuracy: expected at most 0.9300, the best, got 0.94"),
        ({"layers": 4.5}, "layers: expected at least 5.0000, the least, got 4.5"),
    ],
)
def test_wishes_that_no_point_fulfils(wish, message):
    with pytest.raises(ValueError, match=message):
        choose_exit(POINTS, **wish)


def test_bad_input(model):
    with pytest.raises(ValueError, match="batches: expected at least one"):
        exit_points(model, [])
    one_hot = [({"input_ids": np.ones((2, 3), np.int32)}, np.eye(3)[:2])]
    with pytest.raises(ValueError, match="expected the number of its class for each of 2 texts"):
        exit_points(model, one_hot)
    inputs = one_hot[0][0]
    shifted = [(inputs, np.array([0, 1, 2])), (inputs, np.array([0]))]
    with pytest.raises(ValueError, match="for each of 2 texts, got '?3 numbers"):
        exit_points(model, shifted)
    with pytest.raises(ValueError, match="batches: expected labels in all batches or in none"):
        exit_points(model, [(inputs, np.array([0, 1])), inputs])
    for labels in ([0, 3], [-1, 0], [0.5, 1]):
        with pytest.raises(ValueError, match="batches: expected numbers of 3 classes, got"):
            exit_points(model, [(inputs, np.array(labels))])
    for threshold in ((0, 0.0), (1.5, 0.0), (None, -0.1)):
        unread = iter([inputs])
        with pytest.raises(ValueError, match="(patience|entropy): expected"):
            exit_points(model, unread, [threshold])
        assert next(unread) is inputs
    with pytest.raises(ValueError, match="accuracy, layers, changed: expected one of them and"):
        choose_exit([], layers=3)
    with pytest.raises(ValueError, match="accuracy: expected points measured with labels"):
        choose_exit([POINTS[0]._replace(accuracy=None)], accuracy=0.9)
    with pytest.raises(ValueError, match="model: expected a BertWithExits, got BertForSeq"):
        exit_points(BertForSequenceClassification(CONFIG), [])
