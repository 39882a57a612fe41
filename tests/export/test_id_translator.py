"""Decoding as graphs: any shape, few programs, no growing memory; XLA gives the same."""

import gc
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import Transformer, count_compilations
from tf_transformer.export import in_parts
from tf_transformer.export.id_translator import IdTranslator

END, VOCABULARY, LONGEST = 2, 23, 16


@pytest.fixture(scope="module")
def model():
    model = Transformer(
        1, 8, 2, 16, VOCABULARY, VOCABULARY, pe_input=LONGEST, pe_target=24, share_embeddings=True
    )
    model.build()
    return randomize(model, 3)


def sources(count, longest=LONGEST, seed=0):
    """Rows of random ids with the end, padded with 0."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((count, longest), np.int32)
    for row in ids:
        length = rng.integers(1, longest + 1)
        row[:length] = [*rng.integers(3, VOCABULARY, length - 1), END]
    return ids


def batches(count, size, seed=0):
    """Sentences in batches of like length, each padded to its longest."""
    ids = sources(count, seed=seed)
    ids = ids[np.argsort((ids != 0).sum(1), kind="stable")]
    for start in range(0, count, size):
        batch = ids[start : start + size]
        yield tf.constant(batch[:, : (batch != 0).sum(1).max()])


def test_xla_and_a_plain_graph_give_the_same(model):
    plain = IdTranslator(model, 1, END, beam_size=3, n_best=2)
    compiled = IdTranslator(model, 1, END, beam_size=3, n_best=2, jit_compile=True)
    ids = tf.constant(sources(19, 11))
    for name in ("greedy", "beam"):
        expected, actual = (tf.nest.flatten(getattr(t, name)(ids)) for t in (plain, compiled))
        width = expected[0].shape[-1]
        np.testing.assert_array_equal(actual[0][..., :width], expected[0])
        assert not actual[0][..., width:].numpy().any()
        for one, other in zip(actual[1:], expected[1:], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)
    assert len({tuple(row) for row in expected[0][:, 0].numpy()}) > 5


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_batch_is_its_rows(model, jit_compile):
    translator = IdTranslator(model, 1, END, beam_size=3, jit_compile=jit_compile)
    ids = sources(5, 7)
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


def test_what_fills_a_batch_up_is_over_at_once(model):
    bounds = IdTranslator(model, 1, END)._bounds(tf.constant([[5, 6, END], [0, 0, 0]]))
    assert bounds["limits"].numpy().tolist() == [16, 1] and bounds["max_length"] == 16


@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_empty_batch(model, jit_compile):
    translator = IdTranslator(model, 1, END, jit_compile=jit_compile)
    for shape in ((0, 5), (0, 0)):
        ids, scores = translator.beam(tf.zeros(shape, tf.int32))
        assert ids.shape[:2] == (0, 1) and scores.shape == (0, 1)
        assert translator.greedy(tf.zeros(shape, tf.int32)).shape[0] == 0


def test_a_thousand_sentences_need_one_program_for_each_bucket(model, monkeypatch):
    monkeypatch.setattr(in_parts, "_cores", lambda: 2)  # two parts of 16 share their programs
    for jit_compile, most in ((False, 0), (True, 10)):
        translator = IdTranslator(model, 1, END, jit_compile=jit_compile)
        translator.greedy(tf.constant(sources(32)))  # traced
        seen = set()
        with count_compilations() as built:
            for batch in batches(1000, 32):
                translator.greedy(batch)
                seen.add(batch.shape)
        assert built.traces == 0
        # Three encoders: lengths up to 8 and up to 16, and of these the last 8 sentences. Loops:
        # for both lengths with room for 16 and for 32 tokens, in batches of 16 and of the 8 that
        # are left of them; not all of these are met.
        assert built.xla <= most
        assert len(seen) > 8


def memory():
    """What the process holds, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def test_ten_thousand_translations_do_not_grow_the_memory(model):
    translator = IdTranslator(model, 1, END)
    held = []
    for seed in range(10):
        for batch in batches(1000, 50, seed):
            translator.greedy(batch)
        gc.collect()
        held.append(memory())
    # The allocators have what they want after the first ones; a leak would go on.
    assert held[-1] - held[4] < 8, held
