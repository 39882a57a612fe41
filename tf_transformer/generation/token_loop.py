"""Decoding with one sentence for each source.

Axes: B batch, L most tokens to decode, V vocabulary, C candidates.
"""

import tensorflow as tf

from tf_transformer.generation.allowed_tokens import IMPOSSIBLE, best_allowed
from tf_transformer.generation.checks import check_range, refuse_broken, sentence_limits, unusable
from tf_transformer.generation.decode_loop import decode_loop


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
    resize=None,
    jit_compile=False,
):
    """Feed back what is chosen, until every sentence has ended.

    Args:
        choose: function `(logits, ids, position) -> tokens`: (B, C), the best first, to (B,).
        candidates: int, C, or None: V.
        step, state, batch_size, start_id, end_id, max_length, limits, min_length,
            no_repeat_ngram, resize, jit_compile: see `greedy_decode`.

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

    def decode_one(position, state, rows):
        done, output = rows["done"], rows["output"]
        logits, state = step(rows["tokens"], state)
        logits = tf.cast(logits, tf.float32)
        broken = tf.reduce_any(unusable(logits) & ~done)
        logits, _, ids = best_allowed(
            logits,
            tf.zeros((tf.shape(logits)[0], 1)),
            candidates,
            output,
            position,
            end_id=end_id,
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
        )
        tokens = choose(logits, ids, position)  # (B,)
        nothing_left = tf.equal(logits[:, 0], IMPOSSIBLE)
        done |= tf.equal(tokens, end_id) | nothing_left
        tokens = tf.where(done, 0, tokens)
        here = tf.equal(tf.range(tf.shape(output)[1]), position)
        output = tf.where(here, tf.expand_dims(tokens, 1), output)
        done |= position + 1 >= rows["limits"]
        return state, {**rows, "done": done, "tokens": tokens, "output": output}, broken

    rows = {
        "done": tf.fill((batch_size,), False),
        "limits": sentence_limits(limits, batch_size, max_length),
        "tokens": tf.fill((batch_size,), start_id),
        "output": tf.zeros((batch_size, max_length), tf.int32),
    }
    output, broken = decode_loop(decode_one, state, rows, resize, jit_compile)
    refuse_broken(broken)
    return output
