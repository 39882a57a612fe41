"""Sampling: observed frequencies against the exact distribution.

Axes: B batch, C candidates, V vocabulary.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import greedy_decode, sample_decode
from tf_transformer.generation.beam_search import _nucleus

pytestmark = pytest.mark.one_of(3, "core")

V = 7
LOGITS = np.array([0.3, 1.1, -0.4, 0.9, 0.0, -1.0, 0.5], np.float32)
# Chi-square, at most 10 degrees of freedom: a correct sampler exceeds it in 1 of 10,000 runs.
MOST = 35.6


def distribution(temperature=1.0, top_k=None, top_p=None, forbidden=(0,)):
    """Return the expected distribution in float64."""
    logits = LOGITS.astype(np.float64)
    logits[list(forbidden)] = -np.inf
    if top_k:
        logits[logits < np.sort(logits)[-top_k]] = -np.inf
    p = np.exp(logits / temperature)
    p /= p.sum()
    if top_p:
        order = np.argsort(-p)
        kept = order[: np.searchsorted(p[order].cumsum(), top_p) + 1]
        p = np.where(np.isin(np.arange(V), kept), p, 0.0)
        p /= p.sum()
    return p


def fixed(tokens, state):
    """Return the same logits at every step."""
    return tf.broadcast_to(LOGITS, (len(tokens), V)), state


def draw(rows=1_000, length=11, **options):
    settings = {"start_id": 1, "end_id": 99, "max_length": length, **options}
    return sample_decode(fixed, (), rows, **settings).numpy()


def chi_square(tokens, p):
    counts = np.bincount(tokens.ravel(), minlength=V)
    assert not counts[p == 0].any()
    expected = tokens.size * p[p > 0]
    return ((counts[p > 0] - expected) ** 2 / expected).sum()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 3},
        {"top_p": 0.7},
        {"top_p": 1.0},
        {"temperature": 0.7, "top_k": 5, "top_p": 0.8},
    ],
)
def test_frequencies(options):
    tokens = draw(seed=5, **options)
    assert chi_square(tokens, distribution(**options)) < MOST


def test_a_wrong_distribution_is_noticed():
    assert chi_square(draw(seed=5, temperature=1.2), distribution()) > MOST


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_and_steps_are_independent(axis):
    tokens = draw(seed=7, top_k=3)
    p = distribution(top_k=3)
    one, other = (tokens[:-1], tokens[1:]) if axis == 0 else (tokens[:, :-1], tokens[:, 1:])
    pairs = np.bincount((one * V + other).ravel(), minlength=V * V)
    joint = np.outer(p, p).ravel()
    expected = one.size * joint[joint > 0]
    assert ((pairs[joint > 0] - expected) ** 2 / expected).sum() < MOST


def test_the_seed_decides():
    assert (draw(7, seed=1) == draw(7, seed=1)).all()
    assert (draw(7, seed=1) != draw(7, seed=2)).any()


def in_graph(rows, compiled, **options):
    decode = tf.function(
        lambda: sample_decode(
            lambda tokens, state: (tf.broadcast_to(LOGITS, (rows, V)), state),
            (),
            rows,
            start_id=1,
            end_id=99,
            max_length=11,
            **options,
        ),
        jit_compile=compiled,
        autograph=False,
    )
    return decode().numpy()


OPTIONS = {"top_k": 5, "top_p": 0.8, "temperature": 0.9}


def test_a_graph_draws_the_same():
    np.testing.assert_array_equal(
        in_graph(13, False, seed=3, **OPTIONS), draw(13, seed=3, **OPTIONS)
    )


def test_frequencies_under_xla():
    assert chi_square(in_graph(1_000, True, seed=3, **OPTIONS), distribution(**OPTIONS)) < MOST


def test_numbers_of_the_call_can_be_tensors():
    expected = draw(7, seed=3, temperature=0.5, top_p=0.7)
    tensors = {"seed": tf.constant(3), "temperature": tf.constant(0.5), "top_p": tf.constant(0.7)}
    np.testing.assert_array_equal(draw(7, **tensors), expected)
    options = {"top_k": tf.constant(3), "top_p": 0.9}
    assert chi_square(draw(seed=5, **options), distribution(top_k=3, top_p=0.9)) < MOST
    np.testing.assert_array_equal(draw(7, top_k=tf.constant(99)), draw(7))


@pytest.mark.parametrize(
    "tensors, message",
    [
        ({"temperature": tf.constant(0.0)}, "temperature: expected more than 0"),
        ({"temperature": tf.constant(np.inf)}, "temperature: expected more than 0"),
        ({"top_k": tf.constant(0)}, "top_k: expected at least 1"),
        ({"top_p": tf.constant(1.1)}, "top_p: expected more than 0, at most 1"),
    ],
)
def test_tensors_out_of_range(tensors, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        draw(2, **tensors)


def test_whole_sentences_with_their_ends():
    """Sentences of two tokens, where the logits depend on the previous token."""
    table = 0.7 * np.random.default_rng(3).standard_normal((5, 5)).astype(np.float32)

    def step(tokens, state):
        return tf.gather(table, tokens), state

    @tf.function(autograph=False)
    def decode(resize):
        settings = {"start_id": 1, "end_id": 4, "max_length": 2, "seed": 3}
        return sample_decode(step, (), 9_000, resize=resize, **settings)

    p = np.exp(table.astype(np.float64))
    p[:, 0] = 0
    p /= p.sum(1, keepdims=True)
    sentences = {(0, 0): p[1, 4]}
    for first in (1, 2, 3):
        sentences |= {
            (first, second % 4): p[1, first] * p[first, second] for second in (1, 2, 3, 4)
        }
    assert abs(sum(sentences.values()) - 1) < 1e-12
    for resize in (None, lambda state, places, room: state):
        drawn = [tuple(row) for row in decode(resize).numpy().tolist()]
        counts = np.array([drawn.count(sentence) for sentence in sentences])
        expected = 9_000 * np.array(list(sentences.values()))
        assert counts.sum() == 9_000
        assert ((counts - expected) ** 2 / expected).sum() < 39.1  # 12 degrees of freedom


def test_one_candidate_is_greedy():
    greedy = greedy_decode(fixed, (), 5, start_id=1, end_id=99, max_length=4)
    np.testing.assert_array_equal(draw(5, 4, top_k=1), greedy)
    np.testing.assert_array_equal(draw(5, 4, top_p=1e-6), greedy)


def test_the_whole_probability_is_that_of_all_tokens():
    """Also where a sum of some of them is rounded to 1."""
    logits = tf.constant([[30.0, 2.0, 1.0, 0.0], [0.0, -0.1, -0.2, -0.3]])
    np.testing.assert_array_equal(_nucleus(logits, 1.0), logits)
    np.testing.assert_array_equal(_nucleus(logits, tf.constant(1.0)), logits)
    kept = np.isfinite(_nucleus(logits, 0.5))
    np.testing.assert_array_equal(kept, [[1, 0, 0, 0], [1, 1, 0, 0]])


def test_a_sentence_ends_and_no_earlier_than_it_may():
    tokens = draw(500, 8, end_id=3, min_length=2)
    assert (tokens[:, :2] > 0).all() and (tokens[:, 2] == 0).any()
    ended = (tokens == 0).cumsum(axis=1) > 0
    assert not tokens[ended].any() and (tokens != 3).all()


def test_no_token_twice():
    """After the five tokens other than the end, no token is allowed."""
    tokens = draw(50, 8, end_id=3, min_length=9, no_repeat_ngram=1)
    for row in tokens:
        assert len(set(row[:5])) == 5 and not row[5:].any()


def test_limits_of_their_own():
    limits = tf.constant([1, 4, 2])
    tokens = draw(3, 4, limits=limits)
    assert (tokens > 0).sum(axis=1).tolist() == [1, 4, 2]


def test_a_broken_model_is_named():
    def step(tokens, place):
        return tf.fill((2, V), 0.0 if place < 3 else np.nan), place + 1

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"at step(.|\n)*3"):
        sample_decode(step, 0, 2, start_id=1, end_id=99, max_length=9)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": 0.0}, "temperature: expected more than 0, got 0"),
        ({"temperature": -1.0}, "temperature: expected more than 0, got -1"),
        ({"temperature": np.nan}, "temperature: expected more than 0, got nan"),
        ({"temperature": np.inf}, "temperature: expected more than 0, got inf"),
        ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ({"top_k": 8}, "top_k: expected 1 to 7, got 8"),
        ({"top_p": 0.0}, "top_p: expected more than 0"),
        ({"top_p": 1.1}, "top_p: expected more than 0, at most 1, got 1.1"),
        ({"top_k": 2.5}, "top_k: expected a whole number, got 2.5"),
        ({"seed": (1, 2)}, r"seed: expected a whole number, got \(1, 2\)"),
        ({"length": 0}, "max_length: expected at least 1, got 0"),
    ],
)
def test_settings_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        draw(2, **options)
