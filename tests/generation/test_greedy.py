"""Greedy decoding against the reference: cached and uncached; eager, graph and XLA.

Axes: B batch, L maximum length, V vocabulary.
"""

import numpy as np
import pytest
import tensorflow as tf
from loading import vectors
from reference_decoding import beam_search, random_model
from table_steps import empty, step_of
from vector_checks import reference_transformer

from tf_transformer import greedy_decode

pytestmark = pytest.mark.one_of(3, "core")


@pytest.fixture(scope="module")
def model():
    return reference_transformer()


@pytest.fixture(scope="module")
def data():
    return vectors("transformer")


def expected_tokens(data):
    """Return the reference's tokens without start and end token, as `greedy_decode` does."""
    tokens = data["greedy/tokens"][:, 1:]
    ended = (tokens == data["greedy/end"]).cumsum(axis=1) > 0
    tokens = np.where(ended, 0, tokens)
    longest = int(data["greedy/max_len"])
    assert ended[:, -1].any() and not ended[:, -1].all()
    return np.pad(tokens, ((0, 0), (0, longest - tokens.shape[1])))


def decode(model, inp, data, max_length=None):
    max_length = int(data["greedy/max_len"]) if max_length is None else max_length
    return greedy_decode(
        model.step,
        model.start(inp, max_length),
        tf.shape(inp)[0],
        start_id=int(data["greedy/start"]),
        end_id=int(data["greedy/end"]),
        max_length=max_length,
    )


def test_tokens_match_the_vectors(model, data):
    tokens = decode(model, tf.constant(data["inp"]), data)
    assert tokens.dtype == tf.int32
    np.testing.assert_array_equal(tokens, expected_tokens(data))


@pytest.fixture(scope="module")
def graph(model, data):
    """Return decoding as one graph for any batch size, source length and number of steps."""
    return tf.function(
        lambda inp, max_length: decode(model, inp, data, max_length),
        input_signature=[tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((), tf.int32)],
        autograph=False,
    )


def test_a_graph_gives_the_same_tokens(graph, data):
    inp, expected = data["inp"], expected_tokens(data)
    np.testing.assert_array_equal(graph(inp, 11), expected)
    np.testing.assert_array_equal(graph(inp, 4), expected[:, :4])


@pytest.mark.slow
def test_xla_gives_the_same_tokens(model, data):
    compiled = tf.function(lambda x: decode(model, x, data), jit_compile=True, autograph=False)
    np.testing.assert_array_equal(compiled(tf.constant(data["inp"])), expected_tokens(data))


@pytest.mark.slow
def test_cached_decoding_gives_the_tokens_of_uncached_decoding(model, data):
    inp = tf.constant(data["inp"])

    def step(tokens, state):
        position, read = state
        here = tf.one_hot(position, 7, dtype=tf.int32)
        read = read * (1 - here) + tokens[:, None] * here
        logits = model((inp, read[:, : position + 1]))
        return logits[:, -1], (position + 1, read)

    uncached = greedy_decode(
        step, (0, tf.zeros((2, 7), tf.int32)), 2, start_id=1, end_id=3, max_length=7
    )
    np.testing.assert_array_equal(uncached, decode(model, inp, data, 7))


def test_the_amount_of_padding_is_irrelevant(graph, data):
    longer = np.pad(data["inp"], ((0, 0), (0, 4)))
    np.testing.assert_array_equal(graph(longer, 11), expected_tokens(data))


def test_a_batch_equals_its_rows_one_by_one(graph, data):
    for row in range(2):
        at = slice(row, row + 1)
        np.testing.assert_array_equal(graph(data["inp"][at], 11), expected_tokens(data)[at])


def scripted(*sentences, vocabulary=9):
    """Return a step function that generates these sentences for any input."""
    table = tf.one_hot(np.array(sentences).T, vocabulary)  # (L, B, V)

    def step(tokens, position):
        return table[position], position + 1

    return step


def test_a_finished_sentence_stays_zero():
    step = scripted([5, 4, 6, 7], [5, 6, 7, 8])  # 4 is the end token
    tokens = greedy_decode(step, 0, 2, start_id=1, end_id=4, max_length=4)
    assert tokens.numpy().tolist() == [[5, 0, 0, 0], [5, 6, 7, 8]]


def test_decoding_stops_when_every_sentence_has_ended():
    steps = []

    def step(tokens, state):
        steps.append(tokens.numpy().tolist())
        return tf.one_hot([4, 4] if len(steps) == 2 else [5, 4], 9), state

    tokens = greedy_decode(step, (), 2, start_id=1, end_id=4, max_length=7)
    assert tokens.numpy().tolist() == [[5] + [0] * 6, [0] * 7]
    assert steps == [[1, 1], [5, 0]]


def test_padding_is_never_chosen():
    tokens = greedy_decode(scripted([0, 0]), 0, 1, start_id=1, end_id=4, max_length=2)
    assert (tokens.numpy() != 0).all()


def test_a_sentence_that_ends_at_once_is_empty():
    tokens = greedy_decode(scripted([4, 5]), 0, 1, start_id=1, end_id=4, max_length=2)
    assert tokens.numpy().tolist() == [[0, 0]]


@pytest.mark.parametrize("max_length", [0, -1])
def test_nothing_to_decode_is_refused(max_length):
    with pytest.raises(ValueError, match=f"max_length: expected at least 1, got {max_length}"):
        greedy_decode(scripted([5]), 0, 1, start_id=1, end_id=4, max_length=max_length)


def test_lengths_past_the_table_of_positions_are_refused(model, data):
    with pytest.raises(ValueError, match="max_length: .*12.*got 13"):
        decode(model, tf.constant(data["inp"]), data, max_length=13)


class TestRules:
    """Greedy decoding equals the plain Python beam search with one beam."""

    @pytest.mark.parametrize(
        "rules", [{}, {"min_length": 4}, {"no_repeat_ngram": 1}, {"no_repeat_ngram": 2}]
    )
    def test_equals_the_plain_one(self, rules):
        models = [random_model(seed, 5) for seed in range(17)]
        tokens = greedy_decode(
            step_of(models), empty(17, 9), 17, start_id=1, end_id=2, max_length=9, **rules
        ).numpy()
        for model, row in zip(models, tokens, strict=True):
            [(_, expected)] = beam_search(model, 5, 9, 0.0, 1, 1, end=2, **rules)
            assert [t for t in expected if t != 2] == [t for t in row if t]

    def test_limits_of_their_own(self):
        models = [random_model(seed, 9) for seed in range(3)]
        tokens = greedy_decode(
            step_of(models),
            empty(3, 6),
            3,
            start_id=1,
            end_id=2,
            max_length=6,
            min_length=6,
            limits=tf.constant([2, 6, 1]),
        )
        assert (tokens.numpy() > 0).sum(axis=1).tolist() == [2, 6, 1]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_model_is_named(value):
    def step(tokens, place):
        broken = tf.one_hot([7, 7], 9, on_value=value, off_value=0.0)
        return tf.where(place < 2, tf.one_hot([5, 5], 9), broken), place + 1

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"at step(.|\n)*2"):
        greedy_decode(step, 0, 2, start_id=1, end_id=4, max_length=9)


def test_what_a_finished_sentence_gets_does_not_matter():
    def step(tokens, place):
        ended = tf.fill((1, 9), np.nan)
        return tf.concat([tf.where(place < 1, tf.one_hot([4], 9), ended), tf.one_hot([5], 9)], 0), (
            place + 1
        )

    tokens = greedy_decode(step, 0, 2, start_id=1, end_id=4, max_length=3)
    assert tokens.numpy().tolist() == [[0, 0, 0], [5, 5, 5]]


def test_an_empty_batch():
    def step(tokens, state):
        return tf.zeros((0, 9)), state

    assert greedy_decode(step, (), 0, start_id=1, end_id=4, max_length=3).shape == (0, 3)
