"""Accuracy and number of layers of a classifier with exits, for each threshold.

Axes: N texts, L layers, C classes.
"""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.models.bert.exits import BertWithExits, check_thresholds

MOST_LEVELS = 64  # thresholds of the entropy
ROUNDING = 1e-5  # nats, above differences between batches or processors


class ExitPoint(NamedTuple):
    """Accuracy and number of layers for a threshold of early exit.

    Args:
        patience, entropy: int or None, and float in nats, see `BertWithExits.exit_early`.
        accuracy: float in [0, 1], the share of correct answers; None without labels.
        layers: float, the mean number of layers per text.
        changed: float in [0, 1], the share of texts whose answer differs from the last layer's.

    Example:
        >>> ExitPoint(patience=2, entropy=0.0, accuracy=0.9, layers=3.5, changed=0.01).layers
        3.5
    """

    patience: int | None
    entropy: float
    accuracy: float | None
    layers: float
    changed: float


def exit_points(model, batches, thresholds=None):
    """Measure thresholds of early exit on texts, ideally like those the model will be used for.

    The model runs only once; the results for each threshold follow from the logits of all exits.
    Returns a list of `ExitPoint`, in the order of the thresholds. Raises a ValueError if the model
    has no exits, there is no batch, labels are not class numbers, a logit is not finite, or a
    threshold is out of range.

    Args:
        model: built `BertWithExits`.
        batches: iterable of `(inputs, labels)` as for `fit`, or of `inputs` alone; texts that were
            not used in training.
        thresholds: list of `(patience, entropy)`. None: no early exit, then each patience, then
            entropies at equal shares of the measured values, in gaps wider than rounding errors.

    Example:
        >>> from tf_transformer.bert import BertConfig, BertWithExits
        >>> model = BertWithExits(BertConfig(13, 8, 3, 2, 16, labels=("no", "yes")))
        >>> model.build()
        >>> batches = [({"input_ids": np.array([[2, 7, 3], [2, 8, 3]])}, np.array([0, 1]))]
        >>> points = exit_points(model, batches)
        >>> points[0].layers, [point.patience for point in points[1:3]]
        (3.0, [1, 2])
    """
    check(isinstance(model, BertWithExits), "model", "a BertWithExits", type(model).__name__)
    for threshold in thresholds or ():
        check_thresholds(model, *threshold)
    logits, labels = [], []
    for batch in batches:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        logits.append(model(x, training=False).numpy())
        labels.append([] if y is None else np.reshape(y, -1))
        expected = f"the number of its class for each of {len(logits[-1])} texts"
        same = y is None or len(labels[-1]) == len(logits[-1])
        check(same, "batches", expected, f"{len(labels[-1])} numbers")
    check(logits, "batches", "at least one batch", "none")
    logits, labels = np.concatenate(logits), np.concatenate(labels)
    check(
        len(labels) in (0, len(logits)), "batches", "labels in all batches or in none", "a mixture"
    )
    wrong = [label for label in labels if label not in range(logits.shape[-1])]
    check(not wrong, "batches", f"numbers of {logits.shape[-1]} classes", wrong[:5])
    check(np.isfinite(logits).all(), "model", "finite logits", "others")
    guesses = logits.argmax(-1)  # (N, L)
    streaks = np.zeros_like(guesses)
    for n in range(1, guesses.shape[1]):
        same = guesses[:, n] == guesses[:, n - 1]
        streaks[:, n] = np.where(same, streaks[:, n - 1] + 1, 0)
    entropies = tf.reduce_sum(-tf.nn.softmax(logits) * tf.nn.log_softmax(logits), -1).numpy()
    if thresholds is None:
        levels = _levels(entropies[:, :-1])
        patiences = range(1, guesses.shape[1])
        thresholds = [(None, 0.0), *((n, 0.0) for n in patiences), *((None, h) for h in levels)]

    def point(patience, entropy):
        leaves = entropies < entropy
        if patience is not None:
            leaves |= streaks >= patience
        leaves[:, -1] = True
        exits = leaves.argmax(1)  # (N,)
        answers = guesses[np.arange(len(exits)), exits]
        return ExitPoint(
            patience,
            float(entropy),
            float((answers == labels).mean()) if len(labels) else None,
            float(exits.mean() + 1),
            float((answers != guesses[:, -1]).mean()),
        )

    return [point(*one) for one in thresholds]


def _levels(entropies):
    """Return the middle of the widest gap in each of `MOST_LEVELS` equal shares of the values."""
    values, levels = np.sort(entropies, axis=None).astype(np.float64), []
    for share in np.array_split(np.arange(len(values) - 1), MOST_LEVELS):
        gaps = values[share + 1] - values[share]
        if gaps.max(initial=0) > 2 * ROUNDING:
            low = share[gaps.argmax()]
            levels.append((values[low] + values[low + 1]) / 2)
    return levels


def choose_exit(points, *, accuracy=None, layers=None, changed=None):
    """Choose a threshold for a given accuracy, speed or share of changed answers.

    On a few hundred texts, `changed` is a better guide than accuracy, where early exits that are
    correct by chance hide as many that are wrong; it needs no labels. Raises a ValueError if not
    exactly one of the three is given, or no point reaches it.

    Args:
        points: list of `ExitPoint`, from `exit_points`.
        accuracy: None, or float in [0, 1]: the point with the fewest layers that reaches it.
        layers: None, or float of at least 1: the point that changes the fewest answers with at most
            this mean number of layers.
        changed: None, or float in [0, 1]: the point with the fewest layers that changes at most
            this share of answers.

    Example:
        >>> whole = ExitPoint(None, 0.0, accuracy=0.92, layers=12.0, changed=0.0)
        >>> early = ExitPoint(3, 0.0, accuracy=0.91, layers=5.5, changed=0.02)
        >>> choose_exit([whole, early], layers=6) is choose_exit([whole, early], changed=0.02)
        True
    """
    wishes = {"accuracy": accuracy, "layers": layers, "changed": changed}
    given = {name: wish for name, wish in wishes.items() if wish is not None}
    if len(given) != 1 or not points:
        expected = "one of them and points to choose from"
        got = f"{given} and {len(points)} points"
        raise ArgumentError("accuracy, layers, changed", expected, got)
    [(name, wish)] = given.items()
    slack = 1e-9  # 0.7 / 100 is less than 7 of 1,000
    values = [getattr(point, name) for point in points]
    check(None not in values, "accuracy", "points measured with labels", "some without")
    if name == "accuracy" and max(values) < wish - slack:
        raise ArgumentError("accuracy", f"at most {max(values):.4f}, the best", wish)
    if name != "accuracy" and min(values) > wish + slack:
        raise ArgumentError(name, f"at least {min(values):.4f}, the least", wish)
    sign = 1 if name == "accuracy" else -1
    fitting = [point for point in points if sign * (getattr(point, name) - wish) >= -slack]
    if name == "layers":
        return min(fitting, key=lambda point: (point.changed, point.layers))
    return min(fitting, key=lambda point: (point.layers, point.changed))
