"""What decoding refuses: settings out of range, and a model that has broken.

Axes: R rows, V vocabulary.
"""

import tensorflow as tf


def check_range(name, value, least, most=None):
    """Refuse a setting that is out of range.

    Args:
        name: str, the argument's name.
        value: number, None or tensor; the last two are not looked at.
        least, most: numbers, the range; None has no end.

    Raises:
        ValueError: it is outside.

    Example:
        >>> check_range("beam_size", 0, 1)
        Traceback (most recent call last):
        ValueError: beam_size: expected at least 1, got 0.
    """
    if value is None or tf.is_tensor(value):
        return
    if not value >= least or (most is not None and value > most):  # NaN is outside too
        expected = f"at least {least}" if most is None else f"{least} to {most}"
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
