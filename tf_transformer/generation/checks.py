"""What decoding refuses: settings out of range, and a model that has broken.

Axes: B batch, R rows, V vocabulary.
"""

import math
from numbers import Integral, Real

import tensorflow as tf


def check_range(name, value, least, most=None, *, above=False):
    """Refuse a setting that is out of range: a number at once, a tensor when the graph runs.

    Args:
        name: str, the argument's name.
        value: number; None, which is not looked at; or tensor, all of whose numbers are looked at,
            but for XLA, which knows no errors.
        least, most: numbers, the range; None has no end. If `least` is an int, the value is to be
            one: 5, not 5.0.
        above: bool, whether `least` is outside, too.

    Raises:
        ValueError: it is outside, infinite or not a number.
        tf.errors.InvalidArgumentError: the same of a tensor.

    Example:
        >>> check_range("beam_size", 0, 1)
        Traceback (most recent call last):
        ValueError: beam_size: expected at least 1, got 0.
    """
    if value is None:
        return
    expected = f"{'more than' if above else 'at least'} {least:g}"
    if most is not None:
        expected = f"{least:g} to {most:g}" if not above else f"{expected}, at most {most:g}"
    if tf.is_tensor(value):
        inside = value > least if above else value >= least
        if value.dtype.is_floating:
            inside &= tf.math.is_finite(value)
        if most is not None:
            inside &= value <= most
        message = [f"{name}: expected {expected}, got", value]
        tf.debugging.Assert(tf.reduce_all(inside), message)
        return
    whole = isinstance(least, int)
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name}: expected {kind}, got {value!r}.")
    inside = value > least if above else value >= least  # NaN is outside too
    if not inside or not math.isfinite(value) or (most is not None and value > most):
        raise ValueError(f"{name}: expected {expected}, got {value}.")


def unusable(logits):
    """Rows from which no token can be chosen: not a number, infinite, or impossible throughout.

    Args:
        logits: float tensor (R, V).

    Returns:
        bool tensor (R,).

    Example:
        >>> unusable(tf.constant([[0.0, -float("inf")], [0.0, float("nan")]])).numpy().tolist()
        [False, True]
    """
    # A sum carries NaN along, a maximum need not.
    not_a_number = tf.math.is_nan(tf.reduce_sum(logits, axis=-1))
    return not_a_number | ~tf.math.is_finite(tf.reduce_max(logits, axis=-1))


def refuse_broken(step):
    """Say at which step a model broke; inside XLA, which knows no errors, nothing happens.

    Args:
        step: scalar int32 tensor, the step, or -1 if there was none.

    Raises:
        tf.errors.InvalidArgumentError: there was one.

    Example:
        >>> refuse_broken(tf.constant(-1))
    """
    tf.debugging.Assert(
        step < 0,
        [
            "logits: expected numbers, got NaN, infinity or nothing possible at step (from 0)",
            step,
            "Look at the weights: a training that has diverged gives such.",
        ],
    )
