"""A window: each query attends to the keys at most some positions away.

Axes: T target (query) length, S source (key) length. Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError


def check_window(window):
    """Check the `window` of attention."""
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ArgumentError(
            "window",
            "None or an int of at least 1, the number of keys on each side of a query",
            f"{window!r}",
        )


def blocked_or_distant(blocked, window, q, k):
    """Combine a mask with a window."""
    if window is None:
        return blocked
    queries, keys = (tf.range(tf.shape(x)[-2]) for x in (q, k))
    distant = tf.abs(keys - tf.expand_dims(queries, 1)) > window  # (T, S)
    return distant if blocked is None else blocked | distant
