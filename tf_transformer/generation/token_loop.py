"""The loop of greedy decoding and sampling: one sentence per source.

Axes: B batch, L most tokens to decode, V vocabulary, C candidates.
"""

import tensorflow as tf

from tf_transformer.generation.allowed_tokens import IMPOSSIBLE, best_allowed
from tf_transformer.generation.checks import refuse_broken, unusable
from tf_transformer.generation.decode_loop import decode_loop


def decode_tokens(
    choose, candidates, step, state, batch_size, rules, resize=None, jit_compile=False
):
    """Feed back the chosen tokens until every sentence has ended."""

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
            rules,
        )
        tokens = choose(logits, ids, position)  # (B,)
        nothing_left = tf.equal(logits[:, 0], IMPOSSIBLE)
        done |= tf.equal(tokens, rules.end_id) | nothing_left
        tokens = tf.where(done, 0, tokens)
        here = tf.equal(tf.range(tf.shape(output)[1]), position)
        output = tf.where(here, tf.expand_dims(tokens, 1), output)
        done |= position + 1 >= rows["limits"]
        return state, {**rows, "done": done, "tokens": tokens, "output": output}, broken

    rows = {
        "done": tf.fill((batch_size,), False),
        "limits": rules.sentence_limits(batch_size),
        "tokens": tf.fill((batch_size,), rules.start_id),
        "output": tf.zeros((batch_size, rules.max_length), tf.int32),
    }
    output, broken = decode_loop(decode_one, state, rows, resize, jit_compile)
    refuse_broken(broken)
    return output
