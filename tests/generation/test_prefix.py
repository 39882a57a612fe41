"""Decoding after a prefix: the same as with a step for each of its tokens.

Axes: B batch, K beams, R = B * K rows, P prefix, L maximum length, V vocabulary.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import beam_search, gather_rows, greedy_decode, repeat_rows, sample_decode

V, L, END = 11, 8, 2
PROMPTS = np.array([[5, END, 7], [9, 3, 4], [3, 4, 8], [4, 6, END], [7, 7, 10]], np.int32)
B, P = PROMPTS.shape
TABLE = np.random.default_rng(8).normal(size=(L + 1, V, V)).astype(np.float32)


def step(tokens, state):
    """Logits by the position and the last two tokens; within a prompt only its next token's."""
    prompt, position, before = state
    logits = tf.gather(TABLE, position)
    logits = tf.gather(logits, tokens) + tf.gather(TABLE[0], before)
    wanted = tf.gather(tf.pad(prompt, [[0, 0], [0, L]], constant_values=-1), position, axis=1)
    wanted = tf.expand_dims(wanted, 1)
    only = tf.where(tf.range(V) == wanted, 0.0, -np.inf)
    return tf.where(wanted >= 0, only, logits), (prompt, position + 1, tokens)


def decoded(strategy, beams, prefixed, resize=None, **options):
    """The results of a strategy, with a step for each token of the prompts or without."""
    before = PROMPTS[:, -2] if prefixed else np.zeros(B, np.int32)
    state = tf.constant(PROMPTS), tf.constant(P if prefixed else 0), tf.constant(before)
    options = {"start_id": 1, "end_id": END, "max_length": L, "resize": resize, **options}
    options["prefix"] = tf.constant(PROMPTS) if prefixed else None
    if beams:
        options |= {"beam_size": beams, "n_best": beams}
    return tf.nest.flatten(strategy(step, repeat_rows(state, beams or 1), B, **options))


def keep(state, kept, room):
    """Resize a state of sentences that has no time axis."""
    return gather_rows(state, kept)


OPTIONS = [
    {},
    {"pad_id": None},
    {"limits": [3, 2, 1, 8, 5]},
    {"prompt_lengths": [3] * B, "min_length": 6, "no_repeat_ngram": 2},
    {"max_length": P, "prompt_lengths": [3] * B, "pad_id": None},
    {"prompt_lengths": [3] * B, "token_rules": {"repetition_penalty": 1.5, "bad_words": [[4]]}},
]


@pytest.mark.parametrize("beams", [0, 1, 3])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_prefix_replaces_its_steps(beams, options):
    """Also where it contains the end token, or is as long as a sentence may be."""
    strategy = beam_search if beams else greedy_decode
    steps, prefixed = (decoded(strategy, beams, prefixed, **options) for prefixed in (False, True))
    for found, expected in zip(prefixed, steps, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("resize", [None, keep])
def test_draws_are_the_same_after_a_prefix(resize):
    steps, prefixed = (decoded(sample_decode, 0, x, resize, seed=5) for x in (False, True))
    np.testing.assert_array_equal(prefixed, steps)


@pytest.mark.parametrize("shape", [(B,), (B + 1, 2), (B, L + 1)])
def test_a_prefix_of_another_shape_is_refused(shape):
    options = {"start_id": 1, "end_id": END, "max_length": L, "prefix": np.ones(shape, np.int32)}
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="prefix: expected"):
        greedy_decode(step, (), B, **options)
