"""What attention computed, for figures.

Axes: B batch, N heads, G heads of keys, T queries, S keys, H head width.
"""

import contextlib
import contextvars
from typing import NamedTuple

import tensorflow as tf

_RECORD = contextvars.ContextVar("record", default=None)


class RecordedAttention(NamedTuple):
    """The tensors of one call of attention."""

    queries: tf.Tensor
    keys: tf.Tensor
    weights: tf.Tensor | None


@contextlib.contextmanager
def recorded_attention():
    """Within this context, keep what each call of `grouped_attention` in this thread computes.

    Run the model eagerly: a graph would record the symbolic tensors of its trace.
    """
    calls = []
    token = _RECORD.set(calls)
    try:
        yield calls
    finally:
        _RECORD.reset(token)


def record(queries, keys, weights):
    """Keep the tensors of a call, if something records; see `RecordedAttention`."""
    calls = _RECORD.get()
    if calls is not None:
        calls.append(RecordedAttention(queries, keys, weights))
