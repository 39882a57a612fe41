"""Which tokens may come next.

Axes: B batch, K rows of a sentence, R = B * K rows, V vocabulary, L most tokens to decode, C
candidates.
"""

import tensorflow as tf

from tf_transformer.generation.top_sums import top_sums

IMPOSSIBLE = -float("inf")


def best_allowed(logits, so_far, count, history, position, rules):
    """The likeliest ways to go on with a sentence that K rows have begun.

    Never the padding 0, which says that a sentence is over; not the end before `min_length` tokens;
    no token that makes an n-gram a second time (Paulus et al. 2018, section 2.5).

    Args:
        logits: float32 tensor (R, V).
        so_far: float32 tensor (B, K), what is added to all logits of a row; K is known.
        count: int, C, how many; fewer come if K * V is smaller; None: K * V.
        history: int32 tensor (R, L), the tokens so far, at 0 to `position` - 1.
        position: scalar int32 tensor, how many tokens there are.
        rules: `DecodingRules`, of which `end_id`, `min_length` and `no_repeat_ngram` count here.

    Returns:
        `(sums, rows, tokens)`: float32 tensor (B, C), the best first, -inf is none; and int32
        tensors (B, C), the row of the sentence that is gone on with, and the token.

    Raises:
        ValueError: If V is not known.

    Example:
        >>> from tf_transformer.generation.decoding_rules import DecodingRules
        >>> logits = tf.constant([[9.0, 1.0, 3.0, 2.0]])
        >>> rules = DecodingRules(start_id=1, end_id=2, max_length=5, min_length=1)
        >>> history = tf.zeros((1, 5), tf.int32)
        >>> _, _, tokens = best_allowed(logits, tf.zeros((1, 1)), 2, history, 0, rules)
        >>> tokens.numpy().tolist()
        [[3, 1]]
    """
    if logits.shape[-1] is None:
        raise ValueError(
            "logits: expected a vocabulary of known size from the step function, got shape "
            f"{logits.shape}. Say it with tf.ensure_shape."
        )
    if rules.no_repeat_ngram:
        logits = _without_repeats(logits, history, position, rules.no_repeat_ngram)
    beams, everything = so_far.shape[-1], so_far.shape[-1] * logits.shape[-1]
    count = min(count or everything, everything)
    # A few more than wanted: cheaper than to cover two columns of all logits.
    more = min(count + beams * (1 + bool(rules.min_length)), everything)
    sums, rows, tokens = top_sums(logits, so_far, more)
    early = tf.equal(tokens, rules.end_id) & (position < rules.min_length)
    # NaN of a broken model, which the loops report, must not look like the best.
    sums = tf.where(tf.equal(tokens, 0) | early | tf.math.is_nan(sums), IMPOSSIBLE, sums)
    sums, order = tf.math.top_k(sums, count)
    return sums, tf.gather(rows, order, batch_dims=1), tf.gather(tokens, order, batch_dims=1)


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
