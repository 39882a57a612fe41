"""Decoding with one sentence for each source.

Axes: B batch, L most tokens to decode, V vocabulary, C candidates.
"""

import tensorflow as tf

from tf_transformer.generation.allowed_tokens import IMPOSSIBLE, best_allowed
from tf_transformer.generation.checks import check_range, refuse_broken, unusable


def decode_tokens(
    choose,
    candidates,
    step,
    state,
    batch_size,
    *,
    start_id,
    end_id,
    max_length,
    limits=None,
    min_length=0,
    no_repeat_ngram=0,
):
    """Feed back what is chosen, until every sentence has ended: one `tf.while_loop`.

    Args:
        choose: function `(logits, ids, position) -> tokens`: (B, C), the best first, to (B,).
        candidates: int, C, or None: V.
        step, state, batch_size, start_id, end_id, max_length, limits, min_length,
            no_repeat_ngram: see `greedy_decode`.

    Returns:
        int32 tensor (B, L).

    Raises:
        ValueError, tf.errors.InvalidArgumentError: as `greedy_decode`.

    Example:
        >>> def count_up(tokens, state):
        ...     return tf.one_hot(tokens + 1, 6), state
        >>> decode_tokens(
        ...     lambda logits, ids, position: ids[:, 0], 1, count_up, (), 1,
        ...     start_id=1, end_id=4, max_length=3,
        ... ).numpy().tolist()
        [[2, 3, 0]]
    """
    check_range("max_length", max_length, 1)
    check_range("min_length", min_length, 0)
    check_range("no_repeat_ngram", no_repeat_ngram, 0)
    limits = max_length if limits is None else limits
    slots = tf.range(max_length)

    def unfinished(position, tokens, finished, output, broken, state):
        return tf.logical_not(tf.reduce_all(finished)) & (broken < 0)

    def decode_one(position, tokens, finished, output, broken, state):
        logits, state = step(tokens, state)
        logits = tf.cast(logits, tf.float32)
        broken = tf.where(tf.reduce_any(unusable(logits) & ~finished), position, broken)
        logits, ids = best_allowed(
            logits,
            candidates,
            output,
            position,
            end_id=end_id,
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
        )
        tokens = choose(logits, ids, position)  # (B,)
        nothing_left = tf.equal(logits[:, 0], IMPOSSIBLE)
        ended = finished | tf.equal(tokens, end_id) | nothing_left
        tokens = tf.where(ended, 0, tokens)
        output = tf.where(tf.equal(slots, position), tf.expand_dims(tokens, 1), output)
        return position + 1, tokens, ended | (position + 1 >= limits), output, broken, state

    _, _, _, output, broken, _ = tf.while_loop(
        unfinished,
        decode_one,
        (
            tf.constant(0),
            tf.fill((batch_size,), start_id),
            tf.fill((batch_size,), False),
            tf.zeros((batch_size, max_length), tf.int32),
            tf.constant(-1),
            state,
        ),
    )
    refuse_broken(broken)
    return output
