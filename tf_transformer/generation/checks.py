"""Checks of decoding: settings out of range, and models that return NaN.

Axes: B batch, R rows, V vocabulary.
"""

import math
from numbers import Integral, Real

import tensorflow as tf

from tf_transformer.errors import ArgumentError


def check_range(name, value, least, most=None, *, above=False):
    """Check a setting: a number at once, a tensor when the graph runs."""
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
        raise ArgumentError(name, kind, f"{value!r}")
    inside = value > least if above else value >= least  # NaN is outside too
    if not inside or not math.isfinite(value) or (most is not None and value > most):
        raise ArgumentError(name, expected, value)


def unusable(logits):
    """Rows from which no token can be chosen: NaN, infinity, or no possible token."""
    # A sum propagates NaN, a maximum need not.
    not_a_number = tf.math.is_nan(tf.reduce_sum(logits, axis=-1))
    return not_a_number | ~tf.math.is_finite(tf.reduce_max(logits, axis=-1))


def refuse_broken(step):
    """Report the step at which a model returned unusable logits; does nothing under XLA."""
    tf.debugging.Assert(
        step < 0,
        [
            "logits: expected numbers, got NaN, infinity or nothing possible at step (from 0)",
            step,
            "Check the weights: a diverged training produces such logits.",
        ],
    )
