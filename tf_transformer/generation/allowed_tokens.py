"""Which tokens a decoder may choose next.

Axes: B batch, K rows of a sentence, R = B * K rows, V vocabulary, L most tokens to decode, C
candidates.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.generation.top_sums import top_sums

IMPOSSIBLE = -float("inf")


def best_allowed(logits, so_far, count, history, position, rules):
    """The likeliest extensions of the K rows of each sentence.

    Never the padding id 0, which marks the end of a sentence; no end token before `min_length`
    tokens; no token that would repeat an n-gram (Paulus et al. 2018, section 2.5), except one that
    is the only possible token, as within a prompt (see `LanguageModel.start`).
    """
    if logits.shape[-1] is None:
        raise ArgumentError(
            "logits",
            "a vocabulary of known size from the step function",
            f"shape {logits.shape}",
            "Set it with tf.ensure_shape.",
        )
    if rules.no_repeat_ngram:
        logits = _without_repeats(logits, history, position, rules.no_repeat_ngram)
    beams, everything = so_far.shape[-1], so_far.shape[-1] * logits.shape[-1]
    count = min(count or everything, everything)
    # A few extra candidates are cheaper than masking two columns of all logits.
    more = min(count + beams * (1 + bool(rules.min_length)), everything)
    sums, rows, tokens = top_sums(logits, so_far, more)
    early = tf.equal(tokens, rules.end_id) & (position < rules.min_length)
    # NaN, which the loops report, must not rank first.
    sums = tf.where(tf.equal(tokens, 0) | early | tf.math.is_nan(sums), IMPOSSIBLE, sums)
    sums, order = tf.math.top_k(sums, count)
    return sums, tf.gather(rows, order, batch_dims=1), tf.gather(tokens, order, batch_dims=1)


def among_tokens(step, num_tokens):
    """A step function without the logits of ids that have no token."""

    def limited(tokens, state):
        logits, state = step(tokens, state)
        has_more = num_tokens not in (None, logits.shape[-1])
        return logits[:, :num_tokens] if has_more else logits, state

    return limited


def _without_repeats(logits, history, position, n):
    """Mask the tokens that followed an earlier occurrence of the last n - 1 tokens of the row.

    A row with a single possible token stays as it is: the model leaves no choice.
    """
    length = tf.shape(history)[1]
    count = tf.maximum(length - n + 1, 0)  # of places where an n-gram can stand
    choice = tf.math.count_nonzero(logits > IMPOSSIBLE, axis=1, keepdims=True) > 1  # (R, 1)
    last = tf.gather(history, tf.maximum(position - n + 1 + tf.range(n - 1), 0), axis=1)
    same = tf.range(count) + n - 1 < position  # (L - n + 1,), whole n-grams
    same = tf.broadcast_to(same, (tf.shape(history)[0], count))
    for offset in range(n - 1):
        same &= tf.equal(history[:, offset : offset + count], last[:, offset : offset + 1])
    followed = tf.where(same & choice, history[:, n - 1 :], 0)  # the padding is masked in any case
    rows = tf.broadcast_to(tf.expand_dims(tf.range(tf.shape(history)[0]), 1), tf.shape(followed))
    updates = tf.fill(tf.shape(followed), IMPOSSIBLE)
    return tf.tensor_scatter_nd_update(logits, tf.stack([rows, followed], -1), updates)
