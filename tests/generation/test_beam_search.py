"""Beam search against enumeration, a plain Python implementation, and common bugs.

Axes: B batch, K beams, L maximum length, V vocabulary.
"""

import numpy as np
import pytest
import reference_decoding as ref
import tensorflow as tf
from beam_searches import END, assert_same, markov, search
from table_steps import empty, step_of

from tf_transformer import beam_search, greedy_decode

pytestmark = pytest.mark.one_of(3, "core")

PENALTIES = (0.0, 0.6, 1.3)
TOKEN_RULES = [
    {"bad_words": [[3], [4, 1]]},
    {"bad_words": [[4, 4, 4], [1, 4, 3], [1, 1]], "counts_start": True},
    {"suppressed_first": [1, 3], "renormalize": True},
    {"forced_first": 3, "forced_last": 4, "suppressed_first": [3, 4]},
    {"forced_last": END, "bad_words": [[4]], "renormalize": True},
    {"repetition_penalty": 1.5, "counts_start": True},
    {"repetition_penalty": 0.7, "renormalize": True},
    {"bad_words": [[3]]},
    {"bad_words": [[3], [4]], "forced_first": 4, "renormalize": True},
    {"repetition_penalty": 1.5, "forced_last": 3, "bad_words": [[4]]},
]


class TestAgainstEnumeration:
    """A beam wide enough for every prefix finds the best of all sentences."""

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
    @pytest.mark.one_of(10)
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

    @pytest.mark.parametrize("rules", TOKEN_RULES)
    def test_token_rules(self, rules):
        models = [ref.random_model(seed, 5) for seed in range(9)]
        options = {"no_repeat_ngram": 3, "min_length": 2}
        found = search(models, 3, 7, n_best=3, token_rules=rules, **options)
        own = {name: value for name, value in rules.items() if name != "counts_start"}
        own |= {"start": (1,)} if "counts_start" in rules else {}
        differ = 0
        for model, actual in zip(models, found, strict=True):
            expected = ref.beam_search(model, 5, 7, 0.6, 3, 3, end=END, **options, **own)
            assert_same(actual, expected)
            free = ref.beam_search(model, 5, 7, 0.6, 3, 3, end=END, **options)
            differ += [tokens for _, tokens in free] != [tokens for _, tokens in expected]
        assert differ > 4

    @pytest.mark.parametrize("count", [1, 3, 9])
    @pytest.mark.parametrize("beams", [1, 3])
    def test_bad_words_of_one_token(self, beams, count):
        """Few are left out of the candidates, more are masked."""
        models = [ref.random_model(seed, 14) for seed in range(9)]
        words = [[token] for token in range(4, 4 + count)]
        found = search(models, beams, 7, n_best=beams, token_rules={"bad_words": words})
        differ = 0
        for model, actual in zip(models, found, strict=True):
            free, expected = (
                ref.beam_search(model, 14, 7, 0.6, beams, beams, end=END, bad_words=bad)
                for bad in ((), words)
            )
            assert_same(actual, expected)
            differ += free != expected
        assert differ

    def test_each_sentence_has_its_own_first_token(self):
        models, first = [ref.random_model(seed, 5) for seed in range(5)], [3, -1, 1, 4, 3]
        rules = {"forced_first": tf.constant(first)}
        found = search(models, 3, 7, n_best=3, token_rules=rules)
        for model, token, actual in zip(models, first, found, strict=True):
            own = {} if token < 0 else {"forced_first": token}
            assert_same(actual, ref.beam_search(model, 5, 7, 0.6, 3, 3, end=END, **own))
        for first, message in (([3], "forced_first: expected one for each"), ([5] * 5, "-1 to 4")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                search(models, 3, 7, token_rules={"forced_first": tf.constant(first)})

    @pytest.mark.parametrize("early_stopping", [False, True, "never"])
    @pytest.mark.parametrize("length_penalty", [-0.5, 1.5])
    def test_scores_and_stopping_of_transformers(self, length_penalty, early_stopping):
        models = [ref.random_model(seed, 6, scale=1.0) for seed in range(17)]
        options = {"length_divisor": "length", "early_stopping": early_stopping}
        found = search(models, 3, 9, n_best=2, length_penalty=length_penalty, **options)
        for model, actual in zip(models, found, strict=True):
            arguments = (model, 6, 9, length_penalty, 3, 2)
            assert_same(actual, ref.beam_search(*arguments, end=END, **options))

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


@pytest.mark.one_of(10)
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
        """Tokens that the model predicts after the end change neither score nor length."""

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
        """The first token determines the last; the likeliest first token loses."""

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
        """A short sentence finishes first; a longer one wins after length normalization."""

        def model(tokens):
            if len(tokens) < 4:
                return np.array([-99, -99, 1.0, 1.6, -99])
            return np.array([-99, -99, 9.0, -99, -99])

        def length(beams, **options):
            [[(_, tokens)]] = search([model], beams, 9, **options)
            return len(tokens)

        assert length(6, length_penalty=0.0) == 1
        assert length(6, length_penalty=2.0) == 5
        assert length(2, length_penalty=2.0) == 5  # although two have already finished

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
    """With one token besides the end, there are three sentences of length 2 or less."""

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


def test_several_end_tokens_leave_open_beams():
    """The four likeliest extensions of two beams end, and a longer sentence wins."""

    def step(tokens, state):
        return tf.constant([[-99, -99, 2.0, 1.9, 0.8, 0.7]] * 2), state

    options = {"length_penalty": 3.0, "length_divisor": "length", "pad_id": None}
    ids, _ = beam_search(
        step, (), 1, beam_size=2, start_id=1, end_id=(3, 2), max_length=5, n_best=2, **options
    )
    assert ids[0].numpy().tolist() == [[4, 4, 4, 4, 2], [4, 4, 4, 4, 3]]
