"""Beam search on empty, broken, out-of-range and unusually large input."""

import numpy as np
import pytest
import reference_decoding as ref
import tensorflow as tf
from beam_searches import END, assert_same, markov, search

from tf_transformer import beam_search

pytestmark = pytest.mark.one_of(3, "core")


def test_an_empty_batch():
    ids, scores = beam_search(
        markov(1, 5), 0, 0, beam_size=2, start_id=1, end_id=END, max_length=3, n_best=2
    )
    assert ids.shape == (0, 2, 3) and scores.shape == (0, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_model_is_named(value):
    def model(tokens):
        return np.array([0.0, 0.0, -1.0, value if len(tokens) == 2 else 1.0])

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"at step(.|\n)*2"):
        search([ref.random_model(1, 4, scale=0.1), model], 2, 6, min_length=5)


def test_a_broken_model_under_xla_ends_the_loop():
    @tf.function(jit_compile=True, autograph=False)
    def decode():
        return beam_search(
            lambda tokens, state: (tf.fill((2, 5), np.nan), state),
            0,
            1,
            beam_size=2,
            start_id=1,
            end_id=END,
            max_length=7,
        )

    ids, scores = decode()
    assert not ids.numpy().any() and scores.numpy().max() == -np.inf


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beam_size": 0}, "beam_size: expected at least 1, got 0"),
        ({"max_length": 0}, "max_length: expected at least 1, got 0"),
        ({"length_penalty": -0.1}, "length_penalty: expected at least 0, got -0.1"),
        ({"n_best": 4}, "n_best: expected 1 to 3, got 4"),
        ({"min_length": -1}, "min_length: expected at least 0, got -1"),
        ({"no_repeat_ngram": -2}, "no_repeat_ngram: expected at least 0, got -2"),
        ({"length_penalty": np.inf}, "length_penalty: expected at least 0, got inf"),
        ({"beam_size": 2.5}, "beam_size: expected a whole number, got 2.5"),
        ({"beam_size": 5.0}, "beam_size: expected a whole number, got 5.0"),
        ({"beam_size": True}, "beam_size: expected a whole number, got True"),
        ({"beam_size": "5"}, "beam_size: expected a whole number, got '5'"),
        ({"length_penalty": "1"}, "length_penalty: expected a number, got '1'"),
        ({"end_id": 0}, "end_id: expected at least 1, got 0"),
        ({"end_id": (2, 0)}, "end_id: expected at least 1, got 0"),
        ({"length_divisor": "avg"}, "length_divisor: expected one of wu, length"),
        ({"early_stopping": "always"}, "early_stopping: expected one of False, True, never"),
        ({"token_rules": {"bad_word": [[3]]}}, "token_rules: expected .*bad_words"),
        ({"token_rules": {"bad_words": [3]}}, "bad_words: expected lists of at least one id"),
        ({"token_rules": {"bad_words": [[]]}}, "bad_words: expected lists of at least one id"),
        ({"token_rules": {"forced_last": -1}}, "token_rules: expected at least 0, got -1"),
        ({"token_rules": {"suppressed_first": [9]}}, "token_rules: expected 0 to 4, got 9"),
        ({"token_rules": {"repetition_penalty": 0}}, "repetition_penalty: expected .*more than 0"),
        ({"limits": 3}, r"limits: expected one for each sentence, shape \(B,\), got shape \(\)"),
    ],
)
def test_settings_out_of_range(options, message):
    settings = {"beam_size": 3, "max_length": 4, "start_id": 1, "end_id": END, **options}
    with pytest.raises(ValueError, match=message):
        beam_search(markov(1, 5), tf.constant(0), 1, **settings)


# The second is large enough to be sorted in blocks, and prime: the last block is not full.
@pytest.mark.parametrize("vocabulary, beams, limit", [(4, 11, 5), (53, 61, 3)])
def test_a_beam_larger_than_the_vocabulary(vocabulary, beams, limit):
    model = ref.random_model(4, vocabulary)
    [actual] = search([model], beams, limit, n_best=beams)
    assert_same(actual, ref.beam_search(model, vocabulary, limit, 0.6, beams, beams, end=END))


def test_a_model_only_gets_tokens_that_it_knows():
    seen = []

    def step(tokens, state):
        seen.append(tokens.numpy())
        return tf.random.stateless_normal((len(tokens), 53), (len(seen), 1)), state

    beam_search(step, (), 1, beam_size=61, start_id=1, end_id=END, max_length=4)
    assert len(seen) > 2 and max(map(np.max, seen)) == 52


@pytest.mark.parametrize("compiled", [False, True])
def test_what_an_impossible_beam_gets_does_not_matter(compiled):
    """Logits after an end or padding token may be -inf or NaN; XLA sorts NaN first."""
    rng = np.random.default_rng(0)
    table = np.full((7, 7), -np.inf, np.float32)
    for row in table:
        row[rng.choice(range(END, 7), 2, replace=False)] = rng.normal(size=2)

    @tf.function(jit_compile=compiled, autograph=False)
    def decode(table):
        return beam_search(
            lambda tokens, state: (tf.gather(table, tokens), state),
            (),
            1,
            beam_size=3,
            start_id=1,
            end_id=END,
            max_length=5,
            n_best=3,
        )

    table[[0, END]] = -np.inf
    wanted_ids, wanted = decode(tf.constant(table))
    table[[0, END]] = np.nan
    ids, scores = decode(tf.constant(table))
    assert np.isfinite(wanted).all()
    np.testing.assert_array_equal(ids, wanted_ids)
    np.testing.assert_array_equal(scores, wanted)


@pytest.mark.parametrize(
    "tensors, message",
    [
        ({"limits": tf.constant([3, 0])}, "limits: expected at least 1"),
        ({"max_length": tf.constant(0)}, "max_length: expected at least 1"),
        ({"limits": tf.constant([3, 3, 3])}, r"limits: expected one for each of(.|\n)*2(.|\n)*3"),
        ({"limits": tf.constant([3])}, r"limits: expected one for each of(.|\n)*2(.|\n)*1"),
    ],
)
def test_tensors_out_of_range(tensors, message):
    settings = {"beam_size": 2, "max_length": 4, "start_id": 1, "end_id": END, **tensors}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        beam_search(markov(1, 5), tf.constant(0), 2, **settings)


def test_a_state_without_a_row_for_each_beam_is_refused():
    settings = {"beam_size": 3, "max_length": 4, "start_id": 1, "end_id": END}
    with pytest.raises(
        ValueError, match=r"state: expected a row for each .* 6, got shape \(2, 5\)"
    ):
        beam_search(markov(1, 5), {"x": tf.zeros((2, 5)), "t": tf.constant(0)}, 2, **settings)
