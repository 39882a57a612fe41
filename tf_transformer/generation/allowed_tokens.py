"""Which tokens may come next.

Axes: R rows, V vocabulary, L most tokens to decode, C candidates.
"""

import tensorflow as tf

IMPOSSIBLE = -float("inf")


def best_allowed(logits, count, history, position, *, end_id, min_length=0, no_repeat_ngram=0):
    """The likeliest of the tokens that may come next.

    Never the padding 0, which says that a sentence is over; not the end before `min_length` tokens;
    no token that makes an n-gram a second time (Paulus et al. 2018, section 2.5).

    Args:
        logits: float32 tensor (R, V).
        count: int, C, how many; fewer come if V is smaller; None: V.
        history: int32 tensor (R, L), the tokens so far, at 0 to `position` - 1.
        position: scalar int32 tensor, how many tokens there are.
        end_id: int.
        min_length: int, tokens before the end.
        no_repeat_ngram: int, the n; 0 lets everything come again.

    Returns:
        `(logits, ids)`: float32 and int32 tensors (R, C), the best first; -inf is no token.

    Raises:
        ValueError: V is not known.

    Example:
        >>> logits = tf.constant([[9.0, 1.0, 3.0, 2.0]])
        >>> _, ids = best_allowed(logits, 2, tf.zeros((1, 5), tf.int32), 0, end_id=2, min_length=1)
        >>> ids.numpy().tolist()
        [[3, 1]]
    """
    if logits.shape[-1] is None:
        raise ValueError(
            "logits: expected a vocabulary of known size from the step function, got shape "
            f"{logits.shape}. Say it with tf.ensure_shape."
        )
    if no_repeat_ngram:
        logits = _without_repeats(logits, history, position, no_repeat_ngram)
    # A few more than wanted: cheaper than to cover two columns of all logits.
    values, ids = _top(logits, count and count + 1 + bool(min_length))
    early = tf.equal(ids, end_id) & (position < min_length)
    values = tf.where(tf.equal(ids, 0) | early, IMPOSSIBLE, values)
    values, order = _top(values, count)
    return values, tf.gather(ids, order, batch_dims=1)


def _top(values, count):
    width = values.shape[-1]
    return tf.math.top_k(values, min(count or width, width))


def _without_repeats(logits, history, position, n):
    """Cover the tokens that followed, in this row, what the row now ends with."""
    length = tf.shape(history)[1]
    count = tf.maximum(length - n + 1, 0)  # of places where an n-gram can stand
    last = tf.gather(history, tf.maximum(position - n + 1 + tf.range(n - 1), 0), axis=1)
    same = tf.range(count) + n - 1 < position  # (L - n + 1,), whole n-grams
    same = tf.broadcast_to(same, (tf.shape(history)[0], count))
    for offset in range(n - 1):
        same &= tf.equal(history[:, offset : offset + count], last[:, offset : offset + 1])
    followed = tf.where(same, history[:, n - 1 :], 0)  # the padding is covered in any case
    rows = tf.broadcast_to(tf.expand_dims(tf.range(tf.shape(history)[0]), 1), tf.shape(followed))
    updates = tf.fill(tf.shape(followed), IMPOSSIBLE)
    return tf.tensor_scatter_nd_update(logits, tf.stack([rows, followed], -1), updates)
