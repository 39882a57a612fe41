"""Decoding in graphs: any shape, few compilations, no memory growth, same results with XLA."""

import contextlib
import functools
import gc
import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import Transformer, count_compilations
from tf_transformer.export.translation import translator as translator_module
from tf_transformer.export.translation.translator import IdTranslator

END, VOCABULARY, LONGEST = 2, 23, 16
DECODINGS = ("greedy", "beam")


@pytest.fixture(scope="module")
def model():
    model = Transformer(
        1, 8, 2, 16, VOCABULARY, VOCABULARY, pe_input=LONGEST, pe_target=24, share_embeddings=True
    )
    model.build()
    return randomize(model, 3)


@pytest.fixture(scope="module")
def warm(model):
    """A function: jit_compile -> an `IdTranslator`, and what decoding 1,000 sentences built.

    Tests that only compare results reuse these compiled translators.
    """

    @functools.cache
    def make(jit_compile):
        # Two parts of 16 rows share their programs.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(translator_module, "cores", lambda: 2)
            translator = IdTranslator(model, 1, END, beam_size=3, n_best=2, jit_compile=jit_compile)
            return translator, {name: built_by(getattr(translator, name)) for name in DECODINGS}

    return make


def built_by(decode):
    """Decode 1,000 sentences twice; return the counts of both passes and the sizes of the parts."""
    decode(tf.zeros((0, 5), tf.int32))  # traces, compiles nothing
    seen, sizes = set(), set()
    with count_compilations() as first:
        for batch in batches(1000, 32):
            decode(batch)
            seen.add(batch.shape)
            # Batches run in parts of 16 rows; the last batch has 8.
            sizes.add((min(len(batch), 16), 8 if batch.shape[1] <= 8 else 16))
    assert len(seen) > 8 and len(sizes) == 3
    with count_compilations() as second:
        for batch in batches(1000, 32):
            decode(batch)
    return first, second, sizes


@contextlib.contextmanager
def nan_in(model):
    """Fill the embeddings of a model with NaN, as a training that diverged does."""
    weight = model.weights[0]
    before = weight.numpy()
    weight.assign(np.full_like(before, np.nan))
    try:
        yield
    finally:
        weight.assign(before)


def sources(count, longest=LONGEST, seed=0):
    """Return rows of random ids with an end token, padded with 0."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((count, longest), np.int32)
    for row in ids:
        length = rng.integers(1, longest + 1)
        row[:length] = [*rng.integers(3, VOCABULARY, length - 1), END]
    return ids


def batches(count, size, seed=0):
    """Yield batches of sentences of similar length, each padded to its longest."""
    ids = sources(count, seed=seed)
    ids = ids[np.argsort((ids != 0).sum(1), kind="stable")]
    for start in range(0, count, size):
        batch = ids[start : start + size]
        yield tf.constant(batch[:, : (batch != 0).sum(1).max()])


@pytest.mark.slow
def test_xla_and_a_plain_graph_give_the_same(warm):
    plain, compiled = warm(False)[0], warm(True)[0]
    ids = tf.constant(sources(19, 11))
    for name in DECODINGS:
        expected, actual = (tf.nest.flatten(getattr(t, name)(ids)) for t in (plain, compiled))
        width = expected[0].shape[-1]
        np.testing.assert_array_equal(actual[0][..., :width], expected[0])
        assert not actual[0][..., width:].numpy().any()
        for one, other in zip(actual[1:], expected[1:], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)
    assert len({tuple(row) for row in expected[0][:, 0].numpy()}) > 5


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_batch_is_its_rows(warm, jit_compile):
    translator, _ = warm(jit_compile)
    ids = sources(32, 7)
    together, scores = translator.beam(tf.constant(ids))
    greedy = translator.greedy(tf.constant(ids)).numpy()
    for row, best, score, tokens in zip(ids, together[:, 0], scores[:, 0], greedy, strict=True):
        alone = tf.constant(row[None, : (row != 0).sum()])
        found, its_score = translator.beam(alone)
        width = found.shape[-1]
        np.testing.assert_array_equal(found[0, 0], best[:width])
        np.testing.assert_allclose(its_score[0, 0], score, atol=1e-5, rtol=1e-5)
        own = translator.greedy(alone)[0]
        np.testing.assert_array_equal(own, tokens[: len(own)])


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_samples(model, jit_compile):
    """The first two tokens sampled for many copies of a source follow the model's distribution."""
    rules = {"min_length": 3, "length_limit": (0, 5)}
    translator = IdTranslator(model, 1, END, jit_compile=jit_compile, **rules)
    source = sources(1, 7)
    rows = tf.constant(np.repeat(source, 1024, axis=0))

    def sample(seed=1, temperature=0.7, top_k=4, top_p=1.0):
        return translator.sample(rows, seed, temperature, top_k, top_p).numpy()

    assert (sample() == sample()).all() and (sample() != sample(seed=2)).any()
    greedy = translator.greedy(tf.constant(source)).numpy()
    np.testing.assert_array_equal(sample(top_k=1)[:, :5], np.repeat(greedy[:, :5], 1024, axis=0))
    drawn, said = np.concatenate([sample(seed) for seed in range(3)]), [1]
    assert (drawn[:, 2] > 0).all() and not drawn[:, 5:].any()
    for place in range(2):
        logits = model((source, np.array([said])), training=False)[0, -1].numpy() / 0.7
        logits[[0, END]] = -np.inf
        best = np.argsort(-logits)[:4]
        p = np.exp(logits[best].astype(np.float64))
        counts = np.array([(drawn[:, place] == token).sum() for token in best])
        assert counts.sum() == len(drawn)
        expected = len(drawn) * p / p.sum()
        assert ((counts - expected) ** 2 / expected).sum() < 21.1  # chi-square, df = 3, p = 0.0001
        said.append(best[0])
        drawn = drawn[drawn[:, place] == best[0]]


@pytest.mark.slow
def test_rules_of_every_decoding(model):
    rules = {"min_length": 4, "no_repeat_ngram": 2, "length_limit": (1, 3)}
    translator = IdTranslator(model, 1, END, beam_size=3, **rules)
    ids = tf.constant(sources(13))
    lengths = np.count_nonzero(ids, axis=1)
    beams = translator.beam(ids)[0][:, 0].numpy()
    for found in (translator.greedy(ids).numpy(), beams, translator.sample(ids, 1, 1.0, 9, 1.0)):
        for row, length in zip(np.array(found), lengths, strict=True):
            said = row[: np.count_nonzero(row)].tolist()
            pairs = list(itertools.pairwise(said))
            assert 4 <= len(said) <= length + 3 and len(set(pairs)) == len(pairs)


@pytest.mark.slow
def test_a_broken_model_is_named(model, warm):
    ids = tf.constant(sources(32, 7))
    for jit_compile in (False, True):
        translator, _ = warm(jit_compile)
        for decode in (translator.greedy, translator.beam):
            before = decode(ids)
            with (
                nan_in(model),
                pytest.raises(tf.errors.InvalidArgumentError, match=r"NaN(.|\n)*at step"),
            ):
                decode(ids)
            tf.nest.map_structure(np.testing.assert_array_equal, decode(ids), before)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"min_length": -1}, "min_length: expected at least 0, got -1"),
        ({"no_repeat_ngram": 1.5}, "no_repeat_ngram: expected a whole number, got 1.5"),
        ({"length_limit": (2, 0)}, "length_limit: expected at least 1, got 0"),
        ({"length_limit": (2,)}, r"length_limit: expected two numbers, a and b, got \(2,\)"),
        ({"length_limit": 10}, "length_limit: expected two numbers, a and b, got 10"),
    ],
)
def test_rules_out_of_range(model, options, message):
    with pytest.raises(ValueError, match=message):
        IdTranslator(model, 1, END, **options)


def test_what_fills_a_batch_up_is_over_at_once(model):
    bounds = IdTranslator(model, 1, END)._bounds(tf.constant([[5, 6, END], [0, 0, 0]]))
    assert bounds["limits"].numpy().tolist() == [16, 1] and bounds["max_length"] == 16


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_empty_batch(model, warm, jit_compile):
    one_best = IdTranslator(model, 1, END, jit_compile=jit_compile)
    two_best, _ = warm(jit_compile)
    for shape in ((0, 5), (0, 0)):
        empty = tf.zeros(shape, tf.int32)
        for translator, n_best in ((one_best, 1), (two_best, 2)):
            ids, scores = translator.beam(empty)
            assert ids.shape[:2] == (0, n_best) and scores.shape == (0, n_best)
            assert translator.greedy(empty).shape[0] == 0


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", DECODINGS)
def test_a_thousand_sentences_need_one_program_for_each_bucket(warm, name):
    for jit_compile in (False, True):
        first, second, sizes = warm(jit_compile)[1][name]
        assert first.traces == 0
        # One encoder per size, and one loop per size and cache length (16 or 32 tokens), also for
        # the 8 rows left when half of 16 have finished.
        loops = {(rows, length, room) for rows, length in sizes for room in (16, 32)}
        loops |= {(8, length, room) for _, length in sizes for room in (16, 32)}
        most = len(sizes) + len(loops) if jit_compile else 0
        assert bool(most) <= first.xla <= most
        assert second.traces == second.xla == 0


def memory():
    """Return the resident memory of the process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_ten_thousand_translations_do_not_grow_the_memory(warm, jit_compile):
    translator, _ = warm(jit_compile)
    gc.freeze()  # garbage collection skips what earlier tests left behind
    held = []
    # Allocators stop growing after some rounds, of which a large process needs more; a leak
    # would continue.
    while len(held) < 10 or (held[-1] - held[-6] >= 4 and len(held) < 20):
        for decode in (translator.greedy, translator.beam):
            for batch in batches(500, 32, len(held)):
                decode(batch)
        gc.collect()
        held.append(memory())
    gc.unfreeze()
    assert held[-1] - held[-6] < 4, held


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", DECODINGS)
def test_small_batches_by_xla_once_they_are_compiled(model, name):
    translator = IdTranslator(model, 1, END, beam_size=3, n_best=2, length_limit=(1, 3))
    decode, warm_up = (
        getattr(translator, name),
        getattr(translator, f"warm_up{'_beam' * (name == 'beam')}"),
    )
    ids = sources(5, 7)
    ids = tf.constant(ids[:, : (ids != 0).sum(1).max()])
    cold = tf.nest.flatten(decode(ids))
    with count_compilations() as built:
        assert int(warm_up(5, 7)) == 1
    assert built.xla == 1
    with count_compilations() as built:
        warm = tf.nest.flatten(decode(ids))
        with nan_in(model), pytest.raises(tf.errors.InvalidArgumentError, match="at step"):
            decode(ids)
    assert built.xla == built.traces == 0
    width = ids.shape[1] + 3  # the limit of the longest; 11 is that of the bucket
    assert cold[0].shape[-1] == width and warm[0].shape[-1] == 11
    np.testing.assert_array_equal(warm[0][..., :width], cold[0])
    assert not warm[0][..., width:].numpy().any()
    for one, other in zip(warm[1:], cold[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)
