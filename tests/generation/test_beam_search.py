"""Beam search: against enumeration, against a plain Python one, and where others err.

Axes: B batch, K beams, L most tokens, V vocabulary.
"""

import numpy as np
import pytest
import reference_decoding as ref
import tensorflow as tf
from table_steps import empty, step_of

from tf_transformer import beam_search, gather_rows, greedy_decode, repeat_rows

END = 2


def search(models, beams, limit, *, limits=None, **options):
    """Sentences with their end, and scores, one list for each model."""
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


PENALTIES = (0.0, 0.6, 1.3)


class TestAgainstEnumeration:
    """With room for every beginning nothing is lost: the best of all sentences are found."""

    @pytest.mark.parametrize("length_penalty", PENALTIES)
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("vocabulary, limit", [(4, 4), (5, 3), (3, 5)])
    def test_all_sentences(self, vocabulary, limit, seed, length_penalty):
        model = ref.random_model(seed, vocabulary)
        count = 7
        beams = (vocabulary - 1) ** limit
        [actual] = search([model], beams, limit, length_penalty=length_penalty, n_best=count)
        arguments = (model, vocabulary, limit, length_penalty, count)
        assert_same(actual, ref.best_sentences(*arguments, end=END))

    @pytest.mark.parametrize(
        "rules",
        [
            {"min_length": 2},
            {"no_repeat_ngram": 1},
            {"no_repeat_ngram": 2},
            {"no_repeat_ngram": 3, "min_length": 3},
        ],
    )
    def test_rules(self, rules):
        model = ref.random_model(5, 4)
        [actual] = search([model], 81, 4, length_penalty=0.6, n_best=11, **rules)
        expected = ref.best_sentences(model, 4, 4, 0.6, 11, end=END, **rules)
        free = ref.best_sentences(model, 4, 4, 0.6, 11, end=END)
        assert_same(actual, expected)
        assert [tokens for _, tokens in expected] != [tokens for _, tokens in free]


class TestAgainstAPlainOne:
    @pytest.mark.parametrize("length_penalty", (*PENALTIES, 2.0))
    @pytest.mark.parametrize("beams, count", [(1, 1), (2, 1), (3, 2), (3, 3), (5, 2), (13, 4)])
    def test_random_models(self, beams, count, length_penalty):
        models = [ref.random_model(seed, 7) for seed in range(11)]
        options = {"length_penalty": length_penalty, "n_best": count}
        for model, actual in zip(models, search(models, beams, 8, **options), strict=True):
            expected = ref.beam_search(model, 7, 8, length_penalty, beams, count, end=END)
            assert_same(actual, expected)

    @pytest.mark.parametrize("rules", [{"min_length": 3}, {"no_repeat_ngram": 2}])
    def test_rules(self, rules):
        models = [ref.random_model(seed, 5) for seed in range(7)]
        for model, actual in zip(models, search(models, 3, 9, n_best=3, **rules), strict=True):
            assert_same(actual, ref.beam_search(model, 5, 9, 0.6, 3, 3, end=END, **rules))

    def test_limits_of_their_own(self):
        models = [ref.random_model(seed, 7) for seed in range(5)]
        limits = [1, 3, 8, 5, 2]
        results = search(models, 4, 8, limits=limits, n_best=4)
        for model, limit, actual in zip(models, limits, results, strict=True):
            assert_same(actual, ref.beam_search(model, 7, limit, 0.6, 4, 4, end=END))

    def test_no_limit_is_above_the_longest(self):
        models = [lambda tokens: np.array([-99, -99, -9.0, 2.0, 1.0])] * 2
        settings = {"beam_size": 2, "start_id": 1, "end_id": END, "max_length": 4, "n_best": 2}
        most, longer = (
            beam_search(step_of(models, 2), empty(4, 4), 2, limits=tf.constant(limits), **settings)
            for limits in ([4, 4], [9, 4])
        )
        for one, other in zip(most, longer, strict=True):
            np.testing.assert_array_equal(one, other)


def test_one_beam_is_greedy():
    models = [ref.random_model(seed, 7, scale=3.0) for seed in range(23)]
    greedy = greedy_decode(
        step_of(models), empty(23, 9), 23, start_id=1, end_id=END, max_length=9
    ).numpy()
    for length_penalty in PENALTIES:
        ids, _ = beam_search(
            step_of(models),
            empty(23, 9),
            23,
            beam_size=1,
            start_id=1,
            end_id=END,
            max_length=9,
            length_penalty=length_penalty,
        )
        np.testing.assert_array_equal(ids[:, 0], greedy)
    assert (greedy == 0).any() and (greedy[:, -1] > 0).any()


def test_a_batch_is_its_rows():
    models = [ref.random_model(seed, 6) for seed in range(5)]
    together = search(models, 3, 6, n_best=3)
    for model, expected in zip(models, together, strict=True):
        [alone] = search([model], 3, 6, n_best=3)
        assert_same(alone, expected)


def markov(seed, vocabulary):
    """A step function that XLA can compile: the logits hang on the last token and the place."""
    rng = np.random.default_rng(seed)
    table = tf.constant(2 * rng.standard_normal((9, vocabulary, vocabulary)), tf.float32)

    def step(tokens, place):
        return tf.gather(table[place], tokens), place + 1

    return step


@pytest.mark.parametrize("options", [{}, {"no_repeat_ngram": 2, "min_length": 2}])
@pytest.mark.parametrize("compiled", [False, True])
def test_graph_and_xla_give_the_same(compiled, options):
    def decode():
        return beam_search(
            markov(3, 7),
            tf.constant(0),
            3,
            beam_size=4,
            start_id=1,
            end_id=END,
            max_length=8,
            n_best=4,
            **options,
        )

    ids, scores = decode()
    graph_ids, graph_scores = tf.function(decode, jit_compile=compiled, autograph=False)()
    np.testing.assert_array_equal(graph_ids, ids)
    np.testing.assert_allclose(graph_scores, scores, rtol=1e-6)


class TestClassicErrors:
    @pytest.mark.parametrize("surely", [50.0, 1.0])
    def test_a_finished_score_does_not_grow(self, surely):
        """After the end this model says more; nothing of it counts, nor does the length."""

        def model(tokens):
            if END in tokens:
                return np.array([-99, -99, 0.5, surely, -99])
            return np.array([-99, -99, 1.0, 2.0, 1.5])

        for length_penalty in PENALTIES:
            [results] = search([model], 3, 6, length_penalty=length_penalty, n_best=3)
            assert min(len(tokens) for _, tokens in results) < 6
            for value, tokens in results:
                assert END not in tokens[:-1]
                expected = ref.score(model, tokens, length_penalty)
                np.testing.assert_allclose(value, expected, rtol=1e-5)

    @pytest.mark.parametrize("length_penalty", [0.5, 2.0])
    def test_the_penalty_is_applied_once(self, length_penalty):
        model = ref.random_model(5, 5)
        [results] = search([model], 4, 6, length_penalty=length_penalty, n_best=4)
        assert len({len(tokens) for _, tokens in results}) > 1
        for value, tokens in results:
            np.testing.assert_allclose(value, ref.score(model, tokens, length_penalty), rtol=1e-5)

    def test_states_follow_their_beams(self):
        """The first token decides what comes last; the likeliest first token loses."""

        def model(tokens):
            if not tokens:
                return np.array([-99, -99, -99, 1.0, 0.5, 0.4])
            best = {3: -1.0, 4: 3.0, 5: 5.0}[tokens[0]]
            return np.array([-99, -99, best, 0.2, 0.1, 0.0])

        [results] = search([model], 3, 4, length_penalty=0.0, n_best=3)
        assert results[0][1] == (5, END)
        assert_same(results, ref.beam_search(model, 6, 4, 0.0, 3, 3, end=END))

    def test_no_end_is_forced_at_the_limit(self):
        def model(tokens):
            return np.array([-99, -99, -9.0, 2.0, 1.0])

        [[(value, tokens)]] = search([model], 2, 3, length_penalty=0.0)
        assert tokens == (3, 3, 3)
        np.testing.assert_allclose(value, 3 * ref.log_probabilities(model(()))[3], rtol=1e-5)

    def test_the_search_goes_on_while_an_open_beam_can_win(self):
        """A short sentence ends early; the long one is better once both are divided."""

        def model(tokens):
            if len(tokens) < 4:
                return np.array([-99, -99, 1.0, 1.6, -99])
            return np.array([-99, -99, 9.0, -99, -99])

        def length(beams, **options):
            [[(_, tokens)]] = search([model], beams, 9, **options)
            return len(tokens)

        assert length(6, length_penalty=0.0) == 1
        assert length(6, length_penalty=2.0) == 5
        assert length(2, length_penalty=2.0) == 5  # though two have finished before

    def test_it_stops_when_no_open_beam_can_win(self):
        steps = []

        def step(tokens, state):
            steps.append(len(tokens))
            return tf.constant([[-99, -99, 9.0, 0.0, 0.0]] * 2), state

        beam_search(step, (), 1, beam_size=2, start_id=1, end_id=END, max_length=50)
        assert len(steps) == 1

    def test_padding_is_never_chosen(self):
        def model(tokens):
            return np.array([9.0, 0.0, 1.0, 0.5])

        [results] = search([model], 3, 4, n_best=3)
        assert all(0 not in tokens for _, tokens in results)


def test_fewer_sentences_than_wanted():
    """One token and its end: of length 2 there are three sentences."""

    def model(tokens):
        return np.array([0.0, -np.inf, 0.0, 0.0])

    ids, scores = beam_search(
        step_of([model], 5),
        empty(5, 2),
        1,
        beam_size=5,
        start_id=1,
        end_id=END,
        max_length=2,
        n_best=5,
    )
    assert np.isfinite(scores[0]).tolist() == [True] * 3 + [False] * 2
    assert ids[0, 3:].numpy().tolist() == [[0, 0]] * 2


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
        ({"limits": 3}, r"limits: expected one for each sentence, shape \(B,\), got shape \(\)"),
    ],
)
def test_settings_out_of_range(options, message):
    settings = {"beam_size": 3, "max_length": 4, "start_id": 1, "end_id": END, **options}
    with pytest.raises(ValueError, match=message):
        beam_search(markov(1, 5), tf.constant(0), 1, **settings)


# The second one is large enough to be sorted by blocks, and a prime: the last block is not full.
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
    """What follows an end or a padding is -inf, or not a number at all: XLA sorts that first."""
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


def test_rows_of_unknown_rank_are_refused():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def gather(state):
        return gather_rows(state, [0])

    with pytest.raises(ValueError, match="state: expected tensors of known rank"):
        gather(tf.zeros((2, 3)))


def test_repeated_rows():
    state = repeat_rows({"a": tf.constant([[1], [2]]), "b": tf.constant(3)}, 2)
    assert state["a"].numpy().tolist() == [[1], [1], [2], [2]] and state["b"] == 3
