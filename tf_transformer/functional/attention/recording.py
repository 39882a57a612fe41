"""What attention computed, for figures.

Axes: B batch, N heads, G heads of keys, T queries, S keys, H head width.
"""

import contextlib
import contextvars
from typing import NamedTuple

import tensorflow as tf

_RECORD = contextvars.ContextVar("record", default=None)


class RecordedAttention(NamedTuple):
    """The tensors of one call of attention.

    Args:
        queries: float tensor (B, N, T, H), after the projection and the rotation by positions.
        keys: float tensor (B, N, S, H); or (B, G, S, H), where groups of heads share keys.
        weights: float tensor (B, N, T, S), or None if the caller asked for none.

    Example:
        >>> RecordedAttention(tf.ones((1, 2, 3, 4)), tf.ones((1, 2, 5, 4)), None).weights is None
        True
    """

    queries: tf.Tensor
    keys: tf.Tensor
    weights: tf.Tensor | None


@contextlib.contextmanager
def recorded_attention():
    """Within this context, keep what each call of `grouped_attention` in this thread computes.

    Run the model eagerly: a graph would record the symbolic tensors of its trace.

    Yields:
        list of `RecordedAttention`, in the order of the calls.

    Example:
        >>> from tf_transformer import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(d_model=8, num_heads=2), tf.ones((1, 3, 8))
        >>> with recorded_attention() as calls:
        ...     _, weights = layer(x, x, x)
        >>> calls[0].queries.shape.as_list(), calls[0].weights is weights
        ([1, 2, 3, 4], True)
    """
    calls = []
    token = _RECORD.set(calls)
    try:
        yield calls
    finally:
        _RECORD.reset(token)


def record(queries, keys, weights):
    """Keep the tensors of a call, if something records; see `RecordedAttention`.

    Example:
        >>> record(None, None, None)  # nothing records, so this does nothing
    """
    calls = _RECORD.get()
    if calls is not None:
        calls.append(RecordedAttention(queries, keys, weights))
