"""A window: each query attends to the keys at most some positions away.

Axes: T target (query) length, S source (key) length. Leading axes (batch, heads) are "...".
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError


def check_window(window):
    """Check the `window` of attention.

    Args:
        window: None, or int.

    Raises:
        ValueError: If it is neither None nor an int of at least 1.

    Example:
        >>> check_window(64)
    """
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ArgumentError(
            "window",
            "None or an int of at least 1, the number of keys on each side of a query",
            f"{window!r}",
        )


def blocked_or_distant(blocked, window, q, k):
    """Combine a mask with a window.

    Args:
        blocked: None, or a bool tensor that broadcasts to (..., T, S), True = blocked.
        window: None, or int: key s is also blocked for query t if |t - s| > `window`.
        q: tensor (..., T, H).
        k: tensor (..., S, H).

    Returns:
        None, or a bool tensor that broadcasts to (..., T, S), True = blocked.

    Example:
        >>> q = tf.zeros((3, 4))
        >>> blocked_or_distant(None, 1, q, q).numpy()[0].tolist()
        [False, False, True]
    """
    if window is None:
        return blocked
    queries, keys = (tf.range(tf.shape(x)[-2]) for x in (q, k))
    distant = tf.abs(keys - tf.expand_dims(queries, 1)) > window  # (T, S)
    return distant if blocked is None else blocked | distant
