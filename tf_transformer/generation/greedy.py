"""Greedy decoding.

Axes: B batch, L most tokens to decode, V vocabulary.
"""

import tensorflow as tf


def greedy_decode(step, state, batch_size, *, start_id, end_id, max_length):
    """Take the likeliest token, feed it back, until every sentence has ended.

    One `tf.while_loop` over fixed-size buffers. The padding id 0 is never chosen: it says that
    a sentence is over.

    Args:
        step: function `(tokens, state) -> (logits, state)`: tokens (B,) int32, logits (B, V).
        state: whatever `step` takes first, any nest of tensors whose shapes stay.
        batch_size: int or scalar int32 tensor, B.
        start_id: int, the token fed first.
        end_id: int, the token that ends a sentence.
        max_length: int or scalar int32 tensor, L >= 1.

    Returns:
        int32 tensor (B, L), token ids without the end token, 0 after the end.

    Raises:
        ValueError: `max_length` below 1.

    Example:
        >>> def count_up(tokens, state):
        ...     return tf.one_hot(tokens + 1, 6), state
        >>> greedy_decode(count_up, (), 1, start_id=1, end_id=4, max_length=5).numpy().tolist()
        [[2, 3, 0, 0, 0]]
    """
    if isinstance(max_length, int) and max_length < 1:
        raise ValueError(f"max_length: expected at least 1, got {max_length}.")

    def unfinished(t, tokens, finished, output, state):
        return tf.logical_and(t < max_length, tf.logical_not(tf.reduce_all(finished)))

    def decode_one(t, tokens, finished, output, state):
        logits, state = step(tokens, state)
        tokens = tf.argmax(logits[:, 1:], axis=-1, output_type=tf.int32) + 1  # (B,)
        finished = tf.logical_or(finished, tf.equal(tokens, end_id))
        tokens = tf.where(finished, 0, tokens)
        output = tf.tensor_scatter_nd_update(output, [[t]], tf.expand_dims(tokens, 0))
        return t + 1, tokens, finished, output, state

    _, _, _, output, _ = tf.while_loop(
        unfinished,
        decode_one,
        (
            tf.constant(0),
            tf.fill((batch_size,), start_id),
            tf.fill((batch_size,), False),
            tf.zeros((max_length, batch_size), tf.int32),
            state,
        ),
    )
    return tf.transpose(output)  # (B, L)
