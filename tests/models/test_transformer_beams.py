"""Decoding with a model: same result with and without the cache, for any beam size.

Axes: B batch, K beams, R = B * K rows, L maximum length, V vocabulary.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import (
    AlibiPositions,
    Architecture,
    BatchNorm,
    LearnedPositions,
    MacaronFeedForward,
    NoPositions,
    PreNorm,
    RotaryPositions,
    ShawPositions,
    SinusoidalPositions,
    T5Positions,
    Transformer,
    attention_plan,
    beam_search,
    greedy_decode,
    repeat_rows,
)

pytestmark = [pytest.mark.one_of(10, "models"), pytest.mark.one_of(10)]  # files; cases of each test
SIZES = {"num_layers": 2, "d_model": 14, "num_heads": 7, "dff": 11, "pe_input": 9, "pe_target": 9}
INP = tf.constant([[5, 6, 7, 2, 0], [9, 2, 0, 0, 0], [3, 4, 8, 10, 2]])
L, END = 8, 2


def made(vocabularies=(11, 13), seed=6, **options):
    sizes = {"input_vocab_size": vocabularies[0], "target_vocab_size": vocabularies[1]}
    model = Transformer(**{**SIZES, **sizes, **options})
    model.build()
    return randomize(model, seed)


JITS = {"no XLA inside": False, "XLA inside": True}
MODELS = {
    "plain": lambda: made(),
    "shared embeddings": lambda: made((13, 13), share_embeddings=True),
    "no XLA inside": lambda: made(),
    "XLA inside": lambda: made(),
    **{
        type(part).__name__: lambda part=part: made(architecture=Architecture(part), seed=10)
        for part in (
            AlibiPositions(),
            LearnedPositions(9),
            NoPositions(),
            RotaryPositions(),
            ShawPositions(2),
            SinusoidalPositions(),
            T5Positions(4, 5),
        )
    },
    **{
        name: lambda choice=choice: made(architecture=choice, num_heads=6, d_model=12, seed=11)
        for name, choice in {
            "pre-norm": Architecture(residual=PreNorm(), feed_forward=MacaronFeedForward()),
            "batch norm": Architecture(norm=BatchNorm()),
            "grouped, rotary": Architecture(RotaryPositions(), num_key_value_heads=2, key_dim=4),
            "multi-query, T5": Architecture(T5Positions(4, 5), num_key_value_heads=1),
            "grouped, Shaw": Architecture(ShawPositions(2), num_key_value_heads=3, key_dim=5),
            "shared": Architecture(share_qk=True),
            "window": Architecture(window=1),
            "window, rotary": Architecture(RotaryPositions(), window=2, num_key_value_heads=2),
        }.items()
    },
}


def search(step, state, beams, **options):
    return beam_search(
        step,
        state,
        len(INP),
        beam_size=beams,
        start_id=1,
        end_id=END,
        max_length=L,
        n_best=beams,
        no_repeat_ngram=2,  # random models tend to repeat a single word
        **options,
    )


def cached(model, beams, inp=INP, **options):
    state = model.start(inp, L, beams)
    return search(model.step, state, beams, reorder=model.reorder, **options)


def uncached(model, beams, **options):
    """Run the whole model at every step, on all tokens read so far."""

    def step(tokens, state):
        inp, read, length = state
        here = tf.range(L) == tf.expand_dims(length, 1)
        read = tf.where(here, tf.expand_dims(tokens, 1), read)
        logits = model((inp, read), training=False)
        return tf.gather(logits, length, batch_dims=1), (inp, read, length + 1)

    empty = (INP, tf.zeros((len(INP), L), tf.int32), tf.zeros((len(INP),), tf.int32))
    return search(step, repeat_rows(empty, beams), beams, **options)


@pytest.mark.slow
@pytest.mark.one_of(12)
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_cached_is_uncached(name, beams):
    model = MODELS[name]()
    with attention_plan(jit=JITS.get(name, "auto")):
        ids, scores = cached(model, beams)
        expected_ids, expected_scores = uncached(model, beams)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5, rtol=1e-5)
    assert len({tuple(row) for row in ids[:, 0].numpy()}) > 1


def test_caches_that_do_not_follow_their_beams_are_noticed():
    model = made()
    _, expected = uncached(model, 3)
    stuck = search(model.step, model.start(INP, L, 3), 3, reorder=lambda state, rows: state)
    assert np.abs(stuck[1] - expected).max() > 1e-2


def test_padding_is_irrelevant():
    model = made()
    ids, scores = cached(model, 3)
    longer_ids, longer_scores = cached(model, 3, tf.pad(INP, ((0, 0), (0, 4))))
    np.testing.assert_array_equal(longer_ids, ids)
    np.testing.assert_allclose(longer_scores, scores, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["RotaryPositions", "ShawPositions", "T5Positions"])
def test_caches_grow_between_steps(name):
    """A slot keeps its position when slots are added and sentences leave."""
    model, tokens = MODELS[name](), tf.constant([[1, 5, 7, 4, 9, 3], [1, 8, 8, 3, 12, 6]])
    expected = model((INP[1:3], tokens))[1]
    state = model.start(INP[:3], 2, beam_size=2)
    for t in range(6):
        if t == 2:
            state = model.resize(state, tf.constant([2]), 7)
        rows = tokens[:, t]  # the first beam reads the other text
        rows = tf.tile(rows, [3]) if t < 2 else rows
        logits, state = model.step(rows, state)
        np.testing.assert_allclose(logits[-1], expected[t], atol=1e-5)


@pytest.mark.slow
def test_finished_sentences_leave_and_nothing_changes():
    longest = 41  # the caches grow twice
    model, inp = made(pe_target=longest), tf.tile(INP, (7, 1))
    limits = tf.constant(np.random.default_rng(1).integers(1, longest + 1, 21), tf.int32)
    options = {"start_id": 1, "end_id": END, "max_length": longest, "limits": limits}
    options["min_length"] = longest

    def decode(room=longest, **leaving):
        both = {**options, **leaving}
        tokens = greedy_decode(model.step, model.start(inp, room), 21, **both)
        state = model.start(inp, room, 3)
        found = beam_search(model.step, state, 21, beam_size=3, reorder=model.reorder, **both)
        return tokens, *found

    expected = tf.function(decode, autograph=False)()
    for compiled in (False, True):
        leaving = {"resize": model.resize, "jit_compile": compiled}
        graph = tf.function(functools.partial(decode, 0, **leaving), autograph=False)
        for actual, wanted in zip(graph(), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_graph_and_xla_give_the_same(compiled):
    model = made()
    ids, scores = cached(model, 3)
    graph = tf.function(lambda: cached(model, 3), jit_compile=compiled, autograph=False)
    graph_ids, graph_scores = graph()
    np.testing.assert_array_equal(graph_ids, ids)
    np.testing.assert_allclose(graph_scores, scores, atol=1e-5, rtol=1e-5)


def test_any_batch_in_one_graph():
    model = made()

    def decode(inp):
        return beam_search(
            model.step,
            model.start(inp, L, 3),
            tf.shape(inp)[0],
            beam_size=3,
            start_id=1,
            end_id=END,
            max_length=L,
            no_repeat_ngram=2,
            reorder=model.reorder,
        )

    graph = tf.function(
        decode, input_signature=[tf.TensorSpec((None, None), tf.int32)], autograph=False
    )
    ids, _ = cached(model, 3)
    np.testing.assert_array_equal(graph(INP)[0][:, 0], ids[:, 0])
    np.testing.assert_array_equal(graph(INP[1:2, :2])[0][0], ids[1, :1])
    assert graph(INP[:0])[0].shape == (0, 1, L)
