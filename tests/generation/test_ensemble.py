"""Ensembles against full forward passes and float64 means of probabilities.

Axes: B batch, L maximum length, V vocabulary.
"""

import numpy as np
import pytest
import reference_decoding as ref
import tensorflow as tf
from random_weights import randomize

from tf_transformer import BPETokenizer, Ensemble, LanguageModel, Transformer, continue_texts
from tf_transformer.export.translation.translator import IdTranslator

pytestmark = pytest.mark.one_of(10, "layers")

INP = tf.constant([[5, 6, 7, 2, 0], [9, 2, 0, 0, 0], [3, 4, 8, 10, 2]])
V, L, END = 13, 5, 2


def made(seed, **options):
    sizes = {"num_layers": 1, "d_model": 14, "num_heads": 7, "dff": 11}
    sizes |= {"input_vocab_size": 11, "target_vocab_size": V, "pe_input": 9, "pe_target": 9}
    model = Transformer(**{**sizes, **options})
    model.build()
    return randomize(model, seed)


def mean_log_p(models, inp):
    """Return a function from a prefix to log p (V,), in float64, by full forward passes."""

    def model(tokens):
        read = tf.constant([[1, *tokens]])
        logits = [one((inp, read), training=False)[0, -1] for one in models]
        return np.log(np.mean([np.exp(ref.log_probabilities(row)) for row in logits], axis=0))

    return model


@pytest.fixture(scope="module")
def models():
    """Return three models of different weights and sizes."""
    return [made(1), made(2, d_model=10, num_heads=2, num_layers=2), made(3)]


@pytest.mark.slow
def test_a_step_is_the_log_of_the_mean_of_probabilities(models):
    """Feed 4 and 11 to the two beams of each sentence, swap them, then feed 3 to both."""
    ensemble, count = Ensemble(models), len(INP)
    state = ensemble.start(INP, L, beam_size=2)
    _, state = ensemble.step([1, 1] * count, state)
    _, state = ensemble.step([4, 11] * count, state)
    state = ensemble.reorder(state, [1, 0, 3, 2, 5, 4])
    log_p, state = ensemble.step([3, 3] * count, state)
    means = [mean_log_p(models, row[None]) for row in INP]
    expected = [mean((first, 3)) for mean in means for first in (11, 4)]
    np.testing.assert_allclose(log_p, expected, atol=2e-6, rtol=2e-6)
    alone = [mean_log_p([one], INP[:1])((11, 3)) for one in models]
    assert np.abs(alone - expected[0]).max() > 0.1  # no single model gives the mean


@pytest.mark.slow
def test_a_translator_of_one_model_twice_is_that_model():
    """Each model's state follows when sentences leave and caches grow or are reordered."""
    model = made(4, pe_target=41)
    options = {"beam_size": 3, "n_best": 2}
    alone, twice = (IdTranslator(one, 1, END, **options) for one in (model, Ensemble([model] * 2)))
    ids, scores = alone.beam(INP)
    both_ids, both_scores = twice.beam(INP)
    np.testing.assert_array_equal(both_ids, ids)
    np.testing.assert_allclose(both_scores, scores, atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(twice.greedy(INP), alone.greedy(INP))


def test_language_models_continue_a_prompt_together():
    made_of = ((1, 8, 9), (2, 10, 12))
    several = []
    for seed, (layers, width, most) in enumerate(made_of):
        model = LanguageModel(layers, width, 2, 11, V, most)
        model.build()
        several.append(randomize(model, seed))
    ensemble = Ensemble(several)
    config = ensemble.get_config()
    assert (config["vocab_size"], config["max_position"]) == (V, 9)
    state = ensemble.start(np.array([[7, 4]], np.int32), L)
    for token, forced in ((1, 7), (7, 4)):
        log_p, state = ensemble.step([token], state)
        assert log_p[0, forced] == 0.0 and np.all(np.delete(log_p, forced) < -1e3)
    log_p, _ = ensemble.step([4], state)
    read = tf.constant([[1, 7, 4]])
    alone = [ref.log_probabilities(one(read, training=False)[0, -1]) for one in several]
    np.testing.assert_allclose(log_p[0], np.log(np.mean(np.exp(alone), 0)), atol=2e-6, rtol=2e-6)


@pytest.mark.slow
def test_texts_of_one_language_model_twice_are_those_of_the_model():
    tokenizer = BPETokenizer.train(["low lower lowest"], vocab_size=262)
    model = LanguageModel(1, 8, 2, 11, tokenizer.vocab_size, 9)
    model.build()
    randomize(model, 1)
    for how in ({}, {"beam_size": 2}):
        expected = continue_texts(model, tokenizer, ["low", "lower"], **how)
        assert (
            continue_texts(Ensemble([model, model]), tokenizer, ["low", "lower"], **how) == expected
        )


def test_it_knows_the_positions_that_all_know():
    models = [made(1, pe_input=5), made(2, pe_target=6)]
    assert Ensemble(models).get_config() == {
        "models": [model.get_config() for model in models],
        "input_vocab_size": 11,
        "target_vocab_size": 13,
        "pad_id": 0,
        "pe_input": 5,
        "pe_target": 6,
    }


def test_what_is_no_ensemble_is_refused(models):
    with pytest.raises(ValueError, match=r"models: expected one or more .* got \[\]"):
        Ensemble([])
    with pytest.raises(ValueError, match="of the same size, .* 'target_vocab_size': 13, .* 17, "):
        Ensemble([models[0], made(5, target_vocab_size=17)])
    with pytest.raises(ValueError, match="of the same size, .*'input_vocab_size': 11, .* 19,"):
        Ensemble([models[0], made(5, input_vocab_size=19)])
    with pytest.raises(ValueError, match="which read the same ids, got .*'pad_id': 3"):
        Ensemble([models[0], made(5, pad_id=3)])
