"""Beam search on small models, with results as scored sentences."""

import numpy as np
import tensorflow as tf
from table_steps import empty, step_of

from tf_transformer import beam_search

END = 2


def search(models, beams, limit, *, limits=None, **options):
    """Return a list of (score, sentence) for each model; sentences include the end token."""
    length = limit if limits is None else max(limits)
    ids, scores = beam_search(
        step_of(models, beams),
        empty(len(models) * beams, length),
        len(models),
        beam_size=beams,
        start_id=1,
        end_id=END,
        max_length=length,
        limits=None if limits is None else tf.constant(limits),
        **options,
    )
    limits = limits or [limit] * len(models)
    return [
        [
            (score, sentence(row, most))
            for score, row in zip(of_one_scores, of_one, strict=True)
            if score > -np.inf
        ]
        for of_one, of_one_scores, most in zip(ids.numpy(), scores.numpy(), limits, strict=True)
    ]


def sentence(row, limit):
    tokens = tuple(int(token) for token in row if token)
    return tokens if len(tokens) == limit else (*tokens, END)


def assert_same(actual, expected):
    assert [tokens for _, tokens in actual] == [tokens for _, tokens in expected]
    np.testing.assert_allclose(
        [value for value, _ in actual], [value for value, _ in expected], rtol=1e-5, atol=1e-6
    )


def markov(seed, vocabulary):
    """Return an XLA-compatible step function; logits depend on the last token and its position."""
    rng = np.random.default_rng(seed)
    table = tf.constant(2 * rng.standard_normal((9, vocabulary, vocabulary)), tf.float32)

    def step(tokens, place):
        return tf.gather(table[place], tokens), place + 1

    return step
