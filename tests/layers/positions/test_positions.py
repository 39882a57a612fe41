"""Position parts: reference outputs, the law of each, cached = uncached, bad input.

Axes: B batch, N heads, T target length, S source length, H head width, D model width.
"""

from pathlib import Path

import keras
import layer_harness as harness
import numpy as np
import pytest
import reference_numpy as ref
import reference_positions as positions
import tensorflow as tf
from layer_harness import Case

from tf_transformer import (
    AlibiPositions,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    Positional_Encoding,
    RotaryPositions,
    ShawPositions,
    SinusoidalPositions,
    T5Positions,
)
from tf_transformer.functional.attention.plan import AttentionPlan, attention_plan
from tf_transformer.functional.positions import (
    alibi_slopes,
    rotate,
    sinusoidal_positions,
    t5_buckets,
)

B, N, D, H = 2, 4, 24, 6
pytestmark = pytest.mark.one_of(10)  # of the cases of each test
VECTORS = np.load(Path(__file__).parents[2] / "vectors" / "positions.npz")
PARTS = {
    "none": NoPositions,
    "rotary": RotaryPositions,
    "rotary, halves, stretched": lambda **k: RotaryPositions(100.0, 2.0, "halves", **k),
    # One pair is kept, one interpolated, one stretched.
    "rotary, bands": lambda **k: RotaryPositions(100.0, 8.0, "halves", (1.0, 4.0, 40.0), **k),
    "alibi": AlibiPositions,
    "t5": lambda **k: T5Positions(8, 11, **k),
    "shaw": lambda **k: ShawPositions(3, **k),
}
every_part = pytest.mark.parametrize("part", PARTS)


def normal(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def attention(part):
    """A layer whose weights, including the part's, are far from their initial values."""
    layer = MultiHeadAttention(D, N, positions=PARTS[part]())
    layer.build((None, None, D), (None, None, D), (None, None, D))
    rng = np.random.default_rng(3)
    layer.set_weights([0.5 * rng.standard_normal(w.shape) for w in layer.get_weights()])
    return layer


def reference(layer, part, x, blocked):
    """Output (B, T, D) and weights (B, N, T, T) from the equations, in float64."""
    length = x.shape[1]
    params = {
        name: {
            "kernel": getattr(layer, name).kernel.numpy(),
            "bias": getattr(layer, name).bias.numpy(),
        }
        for name in ("wq", "wk", "wv", "dense")
    }
    q, k, v = (ref.split_heads(ref.linear(params[w], x), N) for w in ("wq", "wk", "wv"))
    causal = bool(blocked[..., 0, -1].all()) and length > 1
    bias, by_value = 0.0, None
    if part == "rotary":
        q, k = positions.rotary(q), positions.rotary(k)
    if part == "rotary, halves, stretched":
        q, k = (positions.rotary(a, 100.0, 2.0, "halves") for a in (q, k))
    if part == "rotary, bands":
        q, k = (positions.rotary(a, 100.0, 8.0, "halves", (1.0, 4.0, 40.0)) for a in (q, k))
    if part == "alibi":
        bias = positions.alibi_bias(N, length, length)
    if part == "t5":
        bias = positions.t5_bias(layer.positions.table.numpy(), length, length, 11, causal)
    if part == "shaw":
        tables = (getattr(layer.positions, name).numpy() for name in ("keys", "values"))
        by_key, by_value = positions.shaw_terms(*tables, length, length)
        bias = np.einsum("bnth,tsh->bnts", q, by_key) / np.sqrt(H)
    heads, weights = ref.scaled_dot_product_attention(q, k, v, blocked, bias)
    if by_value is not None:
        heads = heads + np.einsum("bnts,tsh->bnth", weights, by_value)
    return ref.linear(params["dense"], ref.merge_heads(heads)), weights


@every_part
@pytest.mark.parametrize("causal", [False, True])
def test_outputs_are_those_of_the_equations(part, causal):
    layer, x = attention(part), normal(B, 7, D)
    padding = np.zeros((B, 1, 1, 7), np.float32)
    padding[1, ..., 5:] = 1
    future = ref.look_ahead_mask(7) if causal else np.zeros((7, 7))
    expected, weights = reference(layer, part, x, np.maximum(padding, future))
    for wanted in (True, False):
        output, actual = layer(x, x, x, tf.constant(padding), wanted, causal=causal)
        np.testing.assert_allclose(output, expected, atol=1e-4, rtol=1e-4)
        if wanted:
            np.testing.assert_allclose(actual, weights, atol=1e-5)


@every_part
def test_every_plan_gives_the_same(part):
    layer, x = attention(part), normal(B, 11, D)
    expected, _ = layer(x, x, x, return_attention_weights=False, causal=True)
    for plan in (AttentionPlan("rowwise", 40), AttentionPlan("blockwise", 3, 4)):
        with attention_plan(plan):
            actual, _ = layer(x, x, x, return_attention_weights=False, causal=True)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@every_part
def test_decoding_with_a_cache_gives_the_rows_of_the_whole(part):
    layer, x = attention(part), normal(B, 7, D)
    expected, _ = layer(x, x, x, causal=True)
    cache = (tf.zeros((B, N, 9, H)),) * 2
    for start, stop in ((0, 1), (1, 4), (4, 7)):  # one, then three tokens at a time
        rows, cache = layer.step(tf.constant(x[:, start:stop]), cache, start)
        np.testing.assert_allclose(rows, expected[:, start:stop], atol=1e-5)


@every_part
def test_beams_share_a_cache_whose_slots_are_not_positions(part):
    """Beam r of K writes token p to slot p K + r, and sees only its own slots."""
    layer, beams, length = attention(part), 3, 5
    x = normal(1, length, beams, D)
    cache, slots = (tf.zeros((1, N, length * beams, H)),) * 2, np.arange(length * beams)
    rows = []
    for p in range(length):
        own = slots % beams == np.arange(beams)[:, None]
        mask = tf.constant((own & (slots // beams <= p))[None, None])
        at = tf.fill((beams,), p), tf.constant(slots // beams)
        step = tf.function(layer.step, autograph=False)
        new, cache = step(tf.constant(x[:, p]), cache, p * beams, mask, at)
        rows.append(new)
    for r in range(beams):
        expected, _ = layer(x[:, :, r], x[:, :, r], x[:, :, r], causal=True)
        actual = tf.stack([row[:, r] for row in rows], axis=1)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "none"])
def test_scores_depend_on_the_distance_alone(part):
    """With equal tokens everywhere, a pair at the same distance has the same score."""
    layer, length = attention(part), 13
    x = np.repeat(normal(1, 1, D), length, axis=1)
    _, weights = layer(x, x, x)
    logs = np.log(np.asarray(weights, np.float64))
    steps = np.diff(logs, axis=-1)  # score(t, s + 1) - score(t, s)
    np.testing.assert_allclose(steps[..., 1:, 1:], steps[..., :-1, :-1], atol=2e-4)
    assert np.abs(steps).max() > 0.01, "the part tells nothing"


def test_without_positions_attention_is_blind_to_order():
    layer, x = attention("none"), normal(B, 7, D)
    order = np.random.default_rng(1).permutation(7)
    output, shuffled = layer(x, x, x)[0].numpy(), layer(*(x[:, order],) * 3)[0].numpy()
    np.testing.assert_allclose(shuffled, output[:, order], atol=1e-5)


@pytest.mark.parametrize("shift", [1, 7, 100])
def test_a_shift_of_sinusoids_is_one_linear_map(shift):
    codes = sinusoidal_positions(1000, 16).astype(np.float64)
    solved, *_ = np.linalg.lstsq(codes[:-shift], codes[shift:], rcond=None)  # (16, 16)
    np.testing.assert_allclose(codes[:-shift] @ solved, codes[shift:], atol=1e-4)


@pytest.mark.parametrize("start", [0, 1000, 100_000])
def test_sinusoids_are_those_of_the_notes_at_any_length(start):
    x = tf.zeros((1, 7, 24))
    expected = ref.positional_encoding(start + 7, 24)[:, start:]
    np.testing.assert_allclose(SinusoidalPositions().add(x, start), expected, atol=1e-7)
    table = Positional_Encoding().positional_encoding(7, 24)
    if start == 0:
        np.testing.assert_array_equal(SinusoidalPositions().add(x), table)


def test_rotary_angles_are_exact_far_from_the_start():
    x = normal(1, 1, 1, 64)
    for position in (16_384, 1_000_003):
        exact = np.asarray(x, np.float64).reshape(32, 2) @ [1, 1j]
        exact = exact * np.exp(1j * position * 10000.0 ** (-np.arange(32) / 32))
        actual = rotate(tf.constant(x), tf.constant([position])).numpy().reshape(32, 2) @ [1, 1j]
        np.testing.assert_allclose(actual, exact, atol=1e-6)


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_rotary_is_that_of_published_models(pairing):
    actual = rotate(tf.constant(VECTORS["x"]), tf.range(7), pairing=pairing)
    np.testing.assert_allclose(actual, VECTORS[pairing], atol=1e-6)


def test_t5_buckets_are_those_of_the_published_model():
    names = [name for name in VECTORS if name.startswith("t5_")]
    assert len(names) == 6
    for name in names:
        _, buckets, longest, kind = name.split("_")
        actual = t5_buckets(np.arange(-300, 301), int(buckets), int(longest), kind == "causal")
        np.testing.assert_array_equal(actual, VECTORS[name], err_msg=name)


@pytest.mark.parametrize("num_heads", [2, 3, 8, 12])
def test_alibi_slopes_are_those_of_the_published_model(num_heads):
    np.testing.assert_allclose(alibi_slopes(num_heads), VECTORS[f"alibi_{num_heads}"], rtol=1e-6)


def test_learned_positions_are_rows_of_a_table():
    part = LearnedPositions(9)
    part.build((None, None, 4))
    x = normal(B, 3, 4)
    np.testing.assert_array_equal(part(x, start=5), x + part.table.numpy()[5:8])
    with pytest.raises(ValueError, match="9 positions, the learned ones, got length 10"):
        part(x, start=7)
    traced = tf.function(part, input_signature=[tf.TensorSpec((1, None, 4))])
    with pytest.raises(tf.errors.InvalidArgumentError, match="9 positions, the learned ones"):
        traced(tf.zeros((1, 10, 4)))


def test_a_layer_of_a_stack_shares_t5s_table_but_not_shaws():
    for part, shared in ((T5Positions(), True), (ShawPositions(3), False)):
        assert (part.for_layer() is part) is shared
    assert ShawPositions(3).for_layer().max_distance == 3


def self_attention_call(batch, length):
    x = normal(batch, length, D)
    mask = np.zeros((batch, 1, 1, length), np.float32)
    mask[-1, ..., length // 2 + 1 :] = 1
    return {"q": x, "k": x, "v": x, "mask": mask}


LENGTHS = ((2, 5), (1, 1), (3, 7))
CASES = {
    part: Case(
        lambda part=part, **kwargs: MultiHeadAttention(
            D, N, positions=PARTS[part](**kwargs), **kwargs
        ),
        tuple(self_attention_call(*lengths) for lengths in LENGTHS),
        {"return_attention_weights": False, "causal": part != "alibi"},
    )
    for part in PARTS
}
CASES["sinusoidal"] = Case(SinusoidalPositions, tuple({"x": normal(*n, D)} for n in LENGTHS))
CASES["learned"] = Case(
    lambda **kwargs: LearnedPositions(9, **kwargs), tuple({"x": normal(*n, D)} for n in LENGTHS)
)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
def test_eager_and_xla_agree(case):
    harness.check_compiled(case)


@every_case
def test_graph_and_saved_model_agree_at_every_length(case, tmp_path):
    harness.check_saved_model(case, tmp_path)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
@every_case
def test_saved_as_keras_file(case, tmp_path):
    harness.check_keras_file(case, tmp_path)


@every_case
def test_config_round_trip(case):
    harness.check_config(case)


@every_case
def test_gradients_are_finite(case):
    harness.check_gradients(case)


@every_case
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_policies(case, policy):
    harness.check_policy(case, policy)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RotaryPositions(base=0.5), "base, stretch: expected at least 1"),
        (lambda: RotaryPositions(base=float("nan")), "base, stretch: expected at least 1"),
        (lambda: RotaryPositions(stretch=0), "base, stretch: .* got 10000.0 and 0"),
        (lambda: RotaryPositions(bands=(4.0, 1.0, 9.0)), "bands: expected None, or .* ascending"),
        (lambda: SinusoidalPositions("half"), "pairing: expected one of interleaved, halves"),
        (lambda: SinusoidalPositions(offset=-1), "offset: expected an int of at least 0, got -1"),
        (lambda: LearnedPositions(5, offset=1.5), "offset: expected an int of at least 0, got 1.5"),
        (lambda: RotaryPositions(pairing="half"), "pairing: expected one of interleaved, halves"),
        (lambda: ShawPositions(0), "max_distance: expected at least 1, got 0"),
        (lambda: LearnedPositions(0), "max_position: expected an integer of at least 1, got 0"),
        (lambda: LearnedPositions(float("nan")), "max_position: expected .*, got nan"),
        (lambda: Positional_Encoding(2.5), "max_position: expected .*, got 2.5"),
        (lambda: Positional_Encoding(True), "max_position: expected .*, got True"),
        (lambda: T5Positions(7, 128), "num_buckets, max_distance: expected an even number"),
        (lambda: T5Positions(32, 16), "num_buckets, max_distance: .* got 32 and 16"),
    ],
)
def test_wrong_parts(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_odd_widths():
    x = tf.ones((1, 2, 6))
    with pytest.raises(ValueError, match="expected an even head width.*got 3"):
        MultiHeadAttention(6, 2, positions=RotaryPositions())(x, x, x)
    with pytest.raises(ValueError, match="expected an even model width, got 5"):
        SinusoidalPositions()(tf.ones((1, 2, 5)))


def test_a_bias_beside_a_part_that_has_its_own():
    x = tf.ones((1, 2, 8))
    bias = tf.ones((1, 2, 2, 2))
    with pytest.raises(ValueError, match="bias: expected None, since AlibiPositions adds its own"):
        MultiHeadAttention(8, 2, positions=AlibiPositions())(x, x, x, bias=bias)
    MultiHeadAttention(8, 2, positions=RotaryPositions())(x, x, x, bias=bias)


def test_a_config_without_positions_still_loads():
    config = MultiHeadAttention(8, 2).get_config()
    del config["positions"]
    assert MultiHeadAttention.from_config(config).positions is None
    assert keras.saving.deserialize_keras_object(None) is None


@pytest.mark.parametrize("last_included", [False, True])
@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_sines_and_cosines_in_any_order_from_an_offset(pairing, last_included):
    part = SinusoidalPositions(pairing, 3, last_included)
    found = part.add(tf.zeros((1, 5, 10)), start=2)[0].numpy()
    exponents = np.arange(5) / (4 if last_included else 5)
    angles = np.arange(5, 10)[:, np.newaxis] * 10000.0**-exponents
    columns = np.array([np.sin(angles), np.cos(angles)])  # (2, 5, 5)
    order = (1, 0, 2) if pairing == "halves" else (1, 2, 0)
    np.testing.assert_allclose(found, columns.transpose(order).reshape(5, 10), atol=1e-6)


def test_only_tokens_are_numbered_if_padding_does_not_count():
    part, plain = SinusoidalPositions(counts_padding=False), SinusoidalPositions()
    tokens = tf.constant([[False, False, True, True], [True, False, True, False]])
    found = part.add(tf.zeros((2, 4, 6)), tokens=tokens).numpy()
    expected = plain.add(tf.zeros((1, 2, 6)))[0]
    np.testing.assert_array_equal(found[tokens.numpy()], np.tile(expected, (2, 1)))


def test_the_first_rows_of_a_learned_table_may_be_unused():
    part = LearnedPositions(5, offset=2)
    part.build((None, None, 3))
    found = part.add(tf.zeros((1, 4, 3)), start=1)[0]
    np.testing.assert_array_equal(found, part.table[3:7])
    assert part.table.shape == (7, 3)
    with pytest.raises(ValueError, match="expected at most 5 positions"):
        part.add(tf.zeros((1, 6, 3)))
