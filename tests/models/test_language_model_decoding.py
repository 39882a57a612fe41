"""Decoding with a decoder-only model: with and without the cache, and from prompts.

Axes: B batch, K beams, R = B * K rows, L maximum length, P prompt length, V vocabulary.
"""

import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import (
    AlibiPositions,
    Architecture,
    BatchNorm,
    GatedFeedForward,
    LanguageModel,
    LearnedPositions,
    PreNorm,
    RMSNorm,
    RotaryPositions,
    ShawPositions,
    T5Positions,
    beam_search,
    gather_rows,
    greedy_decode,
    repeat_rows,
    sample_decode,
)

pytestmark = [pytest.mark.one_of(10, "models"), pytest.mark.one_of(10)]  # files; cases of each test

L, END = 8, 2
PROMPTS = np.array([[5, 7, 5, 7], [9, 3, 0, 0], [0, 0, 0, 0], [4, 0, 0, 0]])
LONG_PROMPTS = np.array([[5, 7, 5, 7], [9, 3, 4, 0], [3, 3, 8, 0], [4, 6, 11, 9]])
B = len(PROMPTS)
RULES = {"start_id": 1, "end_id": END, "max_length": L}


def made(choice=None, seed=6, **options):
    sizes = {"num_layers": 2, "d_model": 12, "num_heads": 6, "dff": 11} | options
    model = LanguageModel(**sizes, vocab_size=13, max_position=41, architecture=choice)
    model.build()
    return randomize(model, seed)


CHOICES = {
    "paper": None,
    "rotary": Architecture(RotaryPositions()),
    "ALiBi": Architecture(AlibiPositions()),
    "learned": Architecture(LearnedPositions(41)),
    "T5": Architecture(T5Positions(4, 5)),
    "Shaw": Architecture(ShawPositions(2)),
    "batch norm, a window": Architecture(norm=BatchNorm(), window=2),
    "modern": Architecture(
        RotaryPositions(), RMSNorm(), PreNorm(), GatedFeedForward(), 4, num_key_value_heads=2
    ),
}


def decoded(step, state, beams, reorder, **options):
    """Greedy tokens with no beams, otherwise the n-best list and its scores."""
    options = {**RULES, "no_repeat_ngram": 2, **options}
    if not beams:
        return (greedy_decode(step, state, B, **options),)
    beams = {"beam_size": beams, "n_best": beams, "reorder": reorder}
    return beam_search(step, state, B, **beams, **options)


def cached(model, beams, prompts=PROMPTS, prefilled=False, **options):
    state = model.start(prompts, L, beams or 1)
    if prefilled:
        state, prefix = model.prefill(state, tf.fill((B,), RULES["start_id"]))
        options["prefix"] = prefix
    return decoded(model.step, state, beams, model.reorder, **options)


def uncached(model, beams, prompts=PROMPTS):
    """Run the whole model at every step, on all tokens read so far."""

    def step(tokens, state):
        prompt, read, length = state
        here = tf.range(L) == tf.expand_dims(length, 1)
        read = tf.where(here, tf.expand_dims(tokens, 1), read)
        logits = tf.gather(model(read, training=False), length, batch_dims=1)
        wanted = tf.gather(tf.pad(prompt, ((0, 0), (0, L))), length, batch_dims=1)
        forced = tf.math.log(tf.one_hot(wanted, 13))
        logits = tf.where(wanted[:, None] > 0, forced, logits)
        return logits, (prompt, read, length + 1)

    empty = (tf.constant(prompts, tf.int32), tf.zeros((B, L), tf.int32), tf.zeros((B,), tf.int32))
    return decoded(step, repeat_rows(empty, beams or 1), beams, gather_rows)


def same(actual, expected):
    np.testing.assert_array_equal(actual[0], expected[0])
    for ours, theirs in zip(actual[1:], expected[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("beams", [0, 3])
@pytest.mark.parametrize("name", CHOICES)
def test_cached_is_uncached(name, beams):
    model = made(CHOICES[name])
    same(cached(model, beams), uncached(model, beams))


@pytest.mark.one_of(10)
@pytest.mark.parametrize("beams", [0, 3])
@pytest.mark.parametrize("name", CHOICES)
def test_prompts_read_in_one_pass_give_the_same(name, beams):
    model = made(CHOICES[name])
    same(cached(model, beams, LONG_PROMPTS, prefilled=True), uncached(model, beams, LONG_PROMPTS))


def test_prefill_reads_what_all_prompts_have():
    model = made()
    for prompts, count in ((PROMPTS, 0), (LONG_PROMPTS, 3)):
        state, prefix = model.prefill(model.start(prompts, 0, 3), tf.fill((B,), 1))
        keys, values = state["caches"][1]
        assert state["position"] == count and keys.shape == values.shape == (B, 6, count, 2)
        np.testing.assert_array_equal(prefix, np.array(prompts)[:, :count])
        same(cached(model, 3, prompts, prefilled=True), cached(model, 3, prompts))


def test_a_prefix_that_the_state_has_not_read_is_refused():
    model = made()
    state = model.start(LONG_PROMPTS, L)
    _, prefix = model.prefill(state, tf.fill((B,), 1))
    for states, step in ((state, model.step), ([state, state], None)):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="prefix: expected"):
            greedy_decode(step, states, B, prefix=prefix, **RULES)


def test_a_step_does_not_change_its_state():
    model = made()
    state = model.start(LONG_PROMPTS, L)
    state, _ = model.prefill(state, tf.fill((B,), 1))
    one, other = np.full(B, 5), np.full(B, 7)

    def both():
        return [model.step(tokens, state)[0] for tokens in (one, other)]

    expected = both()
    for logits, again in zip(expected, tf.function(both, autograph=False)(), strict=True):
        np.testing.assert_allclose(again, logits, atol=1e-5)
    assert all(np.all(cache[:, :, 3:] == 0) for cache in tf.nest.flatten(state["caches"]))


def test_cached_logits_are_the_uncached_ones():
    model = made(CHOICES["modern"])
    ids = np.array([[1, 5, 12, 4], [1, 11, 3, 8]])
    state = model.start(np.zeros((2, 0), int), 6)
    for t in range(4):
        logits, state = model.step(ids[:, t], state)
        np.testing.assert_allclose(logits, model(ids)[:, t], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [0, 3])
def test_prompts_of_different_lengths_equal_each_alone(beams):
    model = made(CHOICES["rotary"])
    together = cached(model, beams)
    for row, prompt in enumerate(PROMPTS):
        alone = prompt[prompt != 0][None]
        state = model.start(alone, L, beams or 1)
        options = {**RULES, "no_repeat_ngram": 2}
        if beams:
            options |= {"beam_size": beams, "n_best": beams, "reorder": model.reorder}
            found = beam_search(model.step, state, 1, **options)
        else:
            found = (greedy_decode(model.step, state, 1, **options),)
        same(found, [part[row : row + 1] for part in together])


@pytest.mark.parametrize("beams", [1, 3, 5])
def test_every_beam_begins_with_the_prompt_and_none_occurs_twice(beams):
    ids, scores = cached(made(), beams)
    assert np.isfinite(scores).all()
    for prompt, found in zip(PROMPTS, ids.numpy(), strict=True):
        prompt = prompt[prompt != 0]
        assert (found[:, : len(prompt)] == prompt).all()
        assert len({tuple(row) for row in found}) == beams


def test_fewer_texts_than_beams():
    """A prompt of L - 1 tokens leaves one to choose; one of L tokens leaves none."""
    model, prompt = made(), np.array([[5, 6, 7, 8, 9, 10, 11]])
    options = {"beam_size": 15, "n_best": 15, "reorder": model.reorder}
    ids, scores = beam_search(model.step, model.start(prompt, L, 15), 1, **RULES, **options)
    texts = {tuple(ids[0, n].numpy()) for n in range(15) if scores[0, n] > -np.inf}
    assert texts == {(*prompt[0], n) for n in (0, 1, *range(3, 13))}  # 0: it ended
    prompt = np.array([[5, 6, 7, 8, 9, 10, 11, 12]])
    ids, scores = beam_search(model.step, model.start(prompt, L, 15), 1, **RULES, **options)
    np.testing.assert_array_equal(ids[0, 0], prompt[0])
    assert scores[0, 0] == 0.0 and np.isneginf(scores[0, 1:]).all()


def test_scores_do_not_count_the_prompt():
    model, prompt = made(), np.array([[5, 9, 3]])
    options = {"beam_size": 1, "length_penalty": 0.0, "reorder": model.reorder}
    ids, scores = beam_search(model.step, model.start(prompt, L), 1, **RULES, **options)
    text = ids[0, 0].numpy()
    length = np.count_nonzero(text)
    whole = np.append(text[:length], END)[:L]
    log_p = tf.nn.log_softmax(model(np.concatenate([[[1], [1]], [whole[:-1]] * 2], 1)))[0]
    expected = sum(log_p[t, whole[t]] for t in range(3, len(whole)))
    np.testing.assert_allclose(scores[0, 0], expected, rtol=1e-5)


def test_rules_do_not_stop_a_prompt():
    """It may repeat an n-gram, and what follows may not."""
    prompt = np.array([[5, 5, 5, 5, 6]])
    model, rules = made(), {"no_repeat_ngram": 1, "min_length": 7}
    greedy = greedy_decode(model.step, model.start(prompt, L), 1, **RULES, **rules)
    beams, _ = cached(model, 3, np.repeat(prompt, B, 0), **rules)
    for ids in (greedy[0].numpy(), beams[0, 0].numpy()):
        np.testing.assert_array_equal(ids[:5], prompt[0])
        rest = ids[5:][ids[5:] != 0]
        assert len(rest) >= 2 and len({5, 6, *rest}) == len(rest) + 2


def test_samples_begin_with_the_prompt():
    model = made()
    ids = sample_decode(
        model.step, model.start(PROMPTS, L), B, **RULES, temperature=2.0, top_k=9, top_p=0.9
    ).numpy()
    for prompt, found in zip(PROMPTS, ids, strict=True):
        np.testing.assert_array_equal(found[: len(prompt[prompt != 0])], prompt[prompt != 0])


def test_a_prompt_with_the_end_token_ends_there():
    ids = greedy_decode(made().step, made().start([[5, END, 7]], L), 1, **RULES)
    assert ids.numpy().tolist() == [[5] + [0] * 7]


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_prompts_in_half_precision(dtype):
    model = made(dtype=dtype)
    ids = greedy_decode(model.step, model.start(PROMPTS, L), B, **RULES).numpy()
    assert ((ids[:, :4] == PROMPTS) | (PROMPTS == 0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_graph_and_xla_give_the_same(compiled):
    model = made(CHOICES["modern"])
    graph = tf.function(lambda: cached(model, 3), jit_compile=compiled, autograph=False)
    same(graph(), cached(model, 3))


def test_any_prompt_in_one_graph():
    model = made()

    @tf.function(
        input_signature=[tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((), tf.int32)],
        autograph=False,
    )
    def graph(prompt, length):
        options = {**RULES, "max_length": length}
        return greedy_decode(
            model.step, model.start(prompt, length), tf.shape(prompt)[0], **options
        )

    def eager(prompt, length):
        options = {**RULES, "max_length": length}
        return greedy_decode(model.step, model.start(prompt, length), len(prompt), **options)

    for prompt, length in ((PROMPTS, L), (PROMPTS[1:2, :2], 5), (np.zeros((2, 0), int), 3)):
        np.testing.assert_array_equal(graph(prompt, length), eager(prompt, length))


@pytest.mark.slow
def test_finished_texts_leave_and_nothing_changes():
    longest, batch = 19, 20  # the caches grow once
    model, prompts = made(CHOICES["rotary"]), np.tile(PROMPTS, (5, 1))
    limits = tf.constant(np.random.default_rng(1).integers(1, longest + 1, batch), tf.int32)
    options = {**RULES, "max_length": longest, "limits": limits, "min_length": longest}

    def decode(room=longest, **leaving):
        both = {**options, **leaving}
        tokens = greedy_decode(model.step, model.start(prompts, room), batch, **both)
        state = model.start(prompts, room, 3)
        return tokens, *beam_search(
            model.step, state, batch, beam_size=3, reorder=model.reorder, **both
        )

    expected = tf.function(decode, autograph=False)()
    graph = tf.function(lambda: decode(0, resize=model.resize), autograph=False)
    for actual, wanted in zip(graph(), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prompt", [[[0, 5, 7]], [[9, 3, 0], [5, 0, 7]]])
def test_padding_before_a_token_is_refused(prompt):
    """Padded on the left, a prompt would be continued from tokens that the model chose."""
    model = made()
    with pytest.raises(ValueError, match="prompt: expected padding.*Pad on the right"):
        model.start(tf.constant(prompt), L)
    graph = tf.function(lambda ids: model.start(ids, L)["prompt"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Pad on the right"):
        graph(tf.constant(prompt))
