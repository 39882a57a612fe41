"""Step functions made from the models of `reference_decoding`."""

import numpy as np
import tensorflow as tf


def step_of(models, rows_each=1):
    """Return a step function with `rows_each` rows per model; its state is the prefix."""
    vocabulary = len(models[0](()))

    def logits_of(history, lengths):
        return np.stack(
            [
                models[row // rows_each](tuple(int(t) for t in tokens[:length]))
                for row, (tokens, length) in enumerate(zip(history, lengths, strict=True))
            ]
        ).astype(np.float32)

    def step(tokens, state):
        history, length = state  # (R, L + 1), (R,)
        here = tf.range(tf.shape(history)[1]) == tf.expand_dims(length, 1)
        history = tf.where(here, tf.expand_dims(tokens, 1), history)
        length = length + 1
        # The start token comes first and is not part of the sentence.
        logits = tf.numpy_function(
            logits_of, [history[:, 1:], length - 1], tf.float32, stateful=False
        )
        return tf.ensure_shape(logits, (None, vocabulary)), (history, length)

    return step


def empty(rows, max_length):
    """Return the state before the first step."""
    return tf.zeros((rows, max_length + 1), tf.int32), tf.zeros((rows,), tf.int32)
