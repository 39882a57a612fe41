"""Every plan of the attention core keeps one contract: against float64, bit laws, dropout, choice.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import functools

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_gradients import attention_gradients

from tf_transformer import (
    AttentionPlan,
    EncoderLayer,
    attention_plan,
    create_look_ahead_mask,
    create_padding_mask,
    scaled_dot_product_attention,
)
from tf_transformer.functional.attention_plan import choose_plan
from tf_transformer.functional.cached_attention import cached_attention

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}
# Tiles that cut the lengths below unevenly, a single tile, and tiles of one score.
PLANS = {
    "whole": "whole",
    "rowwise 30": AttentionPlan("rowwise", most_scores=30),
    "rowwise 160": AttentionPlan("rowwise", most_scores=160),
    "blockwise 2x3": AttentionPlan("blockwise", query_block=2, key_block=3),
    "blockwise 64x64": AttentionPlan("blockwise", query_block=64, key_block=64),
    "blockwise 3x1": AttentionPlan("blockwise", query_block=3, key_block=1),
}
SHAPES = ((2, 3, 7, 11, 4), (1, 2, 5, 5, 3), (2, 1, 1, 13, 2), (1, 1, 11, 2, 5))  # B, N, T, S, H
MASKS = {
    "none": lambda b, n, t, s: None,
    "padding": lambda b, n, t, s: (b, 1, 1, s),
    "lengths": lambda b, n, t, s: (t, s),
    "all": lambda b, n, t, s: (b, n, t, s),
}
BIASES = {
    "none": lambda b, n, t, s: None,
    "heads": lambda b, n, t, s: (1, n, t, s),
    "batch": lambda b, n, t, s: (b, 1, t, s),
    "lengths": lambda b, n, t, s: (t, s),
}
every_plan = pytest.mark.parametrize("plan", ["whole", "rowwise 30", "blockwise 2x3"])
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def attend_with_gradients(q, k, v, mask, bias, cotangent, **options):
    """(output, gradients of sum(output * cotangent) by q, k, v and the bias, if there is one)."""
    inputs = [q, k, v] if bias is None else [q, k, v, bias]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output, _ = scaled_dot_product_attention(
            q, k, v, mask, bias=bias, return_attention_weights=False, **options
        )
        projected = tf.reduce_sum(tf.cast(output * cotangent, tf.float32))
    return output, tape.gradient(projected, inputs)


@functools.cache
def path(name, plan, **options):
    """A way to run `attend_with_gradients`: eager, a graph, XLA around it, XLA for the core."""
    run = functools.partial(
        attend_with_gradients, plan=PLANS[plan], jit=name == "core_xla", **options
    )
    if name in ("eager", "core_xla"):
        return run
    return tf.function(run, autograph=False, jit_compile=name == "xla")


def near(actual, expected, dtype):
    """Point 5: for N(0, 1) inputs, whose results are of the order of one or below."""
    actual, tolerance = tf.cast(actual, tf.float64), TOLERANCE[dtype]
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@st.composite
def problems(draw):
    """Arguments of one attention: N(0, 1) numbers, any kind of mask and bias."""
    b, n, t, s, h = draw(st.sampled_from(SHAPES))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    shapes = {"q": (b, n, t, h), "k": (b, n, s, h), "v": (b, n, s, h + 2), "g": (b, n, t, h + 2)}
    problem = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    shape = MASKS[draw(st.sampled_from(sorted(MASKS)))](b, n, t, s)
    share = draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))  # all free ... all blocked
    problem["mask"] = None if shape is None else (rng.random(shape) < share).astype(np.float32)
    shape = BIASES[draw(st.sampled_from(sorted(BIASES)))](b, n, t, s)
    problem["bias"] = None if shape is None else rng.standard_normal(shape)
    problem["causal"] = draw(st.booleans())
    return problem


def check(problem, dtype, name, plan):
    """Contract points 1, 2, 5, 6: output and gradients near float64, whatever is blocked."""
    names = ["q", "k", "v"] + ([] if problem["bias"] is None else ["bias"])
    given = {x: tf.cast(problem[x], dtype) for x in (*names, "g")}
    run = path(name, plan, causal=problem["causal"])
    mask = None if problem["mask"] is None else tf.constant(problem["mask"])
    output, gradients = run(*(given.get(x) for x in "qkv"), mask, given.get("bias"), given["g"])
    exact = {x: tf.cast(given[x], tf.float64).numpy() for x in given}
    (t, s), blocked = (exact["q"].shape[2], exact["k"].shape[2]), np.zeros(1)
    if problem["mask"] is not None:
        blocked = problem["mask"] != 0
    if problem["causal"]:
        blocked = np.maximum(blocked, np.arange(s) > np.arange(t)[:, None])
    bias = exact.get("bias", 0.0)
    expected, _ = ref.scaled_dot_product_attention(*(exact[x] for x in "qkv"), blocked, bias)
    assert output.dtype == tf.as_dtype(dtype)
    near(output, expected, dtype)
    gradient_of = attention_gradients(*(exact[x] for x in "qkv"), exact["g"], blocked, bias)
    for x, gradient in zip(names, gradients, strict=True):
        assert gradient.dtype == tf.as_dtype(dtype)
        near(gradient, gradient_of[x].reshape(gradient.shape), dtype)


several = functools.partial(
    settings, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@several(max_examples=25)
@given(problems(), st.sampled_from(sorted(TOLERANCE)), st.sampled_from(sorted(PLANS)))
def test_eager_and_graph_are_near_float64(problem, dtype, plan):
    for name in ("eager", "graph"):
        check(problem, dtype, name, plan)


@several(max_examples=20)
@given(
    problems(),
    st.sampled_from(sorted(TOLERANCE)),
    st.sampled_from(sorted(PLANS)),
    st.sampled_from(["xla", "core_xla"]),
)
def test_xla_is_near_float64(problem, dtype, plan, name):
    check(problem, dtype, name, plan)


def normal(*shape, seed=3, dtype="float32"):
    return tf.cast(np.random.default_rng(seed).standard_normal(shape), dtype)


def some_inputs(dtype="float32", t=7, s=11):
    """q, k, v and a cotangent of the output; t != s, both prime."""
    q, g = (normal(2, 3, t, 4, seed=seed, dtype=dtype) for seed in (0, 1))
    k, v = (normal(2, 3, s, 4, seed=seed, dtype=dtype) for seed in (2, 3))
    return q, k, v, g


every_path = pytest.mark.parametrize("name", ["eager", "graph", "xla"])


@every_dtype
@every_plan
@every_path
def test_scores_of_30000_stay_finite(name, plan, dtype):
    q = tf.cast(np.full((2, 3, 7, 4), 128.0), dtype)  # 4 * 128^2 / sqrt(4) = 32768
    k = tf.concat([q, -q[:, :, :4]], axis=2)
    _, _, v, g = some_inputs(dtype)
    mask = tf.constant(np.arange(11) < 4, tf.float32)  # the free ones score +30000 and -30000
    mask = tf.reshape(mask, (1, 1, 1, 11))
    output, gradients = path(name, plan)(q, k, v, mask, None, g)
    exact = (tf.cast(x, tf.float64).numpy() for x in (q, k, v))
    near(output, ref.scaled_dot_product_attention(*exact, mask)[0], dtype)
    assert all(np.isfinite(tf.cast(gradient, tf.float32)).all() for gradient in gradients)


@every_plan
@every_path
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_with_every_key_blocked_is_the_plain_average(name, plan, causal):
    q, k, v, g = some_inputs()
    blocked = np.zeros((2, 1, 7, 11), np.float32)
    blocked[1, :, 4] = 1  # row 4 of one sentence sees nothing, the future included
    run = path(name, plan, causal=causal)
    output, (dq, dk, _) = run(q, k, v, tf.constant(blocked), None, g)
    near(output[1, :, 4], v[1].numpy().astype(np.float64).mean(axis=1), "float32")
    assert not dq[1, :, 4].numpy().any(), "its average depends on no query"
    one_less, (_, other_dk, _) = run(
        tf.where(blocked[..., :1] == 1, 9.0, q), k, v, blocked, None, g
    )
    np.testing.assert_array_equal(other_dk, dk)
    np.testing.assert_array_equal(one_less, output)


@every_plan
@every_path
def test_what_is_blocked_changes_no_bit(name, plan):
    q, k, v, g = some_inputs()
    blocked = np.zeros((2, 1, 7, 11), np.float32)
    blocked[0, ..., 2] = blocked[1, ..., 7:] = 1
    column = np.broadcast_to(blocked[:, :, 0, :, None], (2, 3, 11, 1)) == 1
    run = path(name, plan)
    output, gradients = run(q, k, v, tf.constant(blocked), None, g)
    others = tf.where(column, 173.0, k), tf.where(column, -3e4, v)
    other, changed = run(q, *others, tf.constant(blocked), None, g)
    np.testing.assert_array_equal(other, output)
    np.testing.assert_array_equal(changed[0], gradients[0])
    for gradient in changed[1:]:
        assert not gradient.numpy()[np.broadcast_to(column, gradient.shape)].any()
        assert gradient.numpy().any()


@every_plan
@every_path
def test_under_causal_the_future_changes_no_bit_of_the_past(name, plan):
    q, k, v, g = some_inputs(t=11)
    run = path(name, plan, causal=True)
    output, _ = run(q, k, v, None, None, g)
    for now in (1, 5, 10):
        future = np.arange(11)[:, None] >= now
        other, _ = run(q, tf.where(future, 9.0, k), tf.where(future, -9.0, v), None, None, g)
        np.testing.assert_array_equal(other[:, :, :now], output[:, :, :now])
        assert (other[:, :, now:] != output[:, :, now:]).numpy().all()


@every_plan
def test_causal_is_the_look_ahead_mask(plan):
    q, k, v, g = some_inputs(t=11)
    causal, gradients = path("graph", plan, causal=True)(q, k, v, None, None, g)
    mask = create_look_ahead_mask(11)
    masked, others = path("graph", plan)(q, k, v, mask, None, g)
    near(causal, masked.numpy(), "float32")
    for one, other in zip(gradients, others, strict=True):
        near(one, other.numpy(), "float32")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "plan",
    [
        AttentionPlan("blockwise", query_block=64, key_block=128),
        AttentionPlan("rowwise", most_scores=2**15),
    ],
    ids=["blockwise", "rowwise"],
)
def test_long_gradients_equal_those_of_the_whole_plan(plan, causal):
    q, k, v, g = some_inputs(t=509, s=601)
    mask = np.zeros((2, 1, 1, 601), np.float32)
    mask[1, ..., 500:] = 1
    run = functools.partial(attend_with_gradients, q, k, v, mask, None, g, causal=causal)
    output, gradients = run(plan=plan)
    expected, others = run(plan="whole")
    near(output, expected.numpy(), "float32")
    for one, other in zip(gradients, others, strict=True):
        near(one, other.numpy(), "float32")


@every_plan
def test_batch_and_lengths_may_be_unknown_until_the_graph_runs(plan):
    @tf.function(
        input_signature=[tf.TensorSpec([None, 3, None, 4])] * 3
        + [tf.TensorSpec([None] * 4)] * 2
        + [tf.TensorSpec([None, 3, None, 4])],
        autograph=False,
    )
    def run(*arguments):
        return attend_with_gradients(*arguments, plan=PLANS[plan], causal=True)

    for t, s in ((7, 11), (3, 2), (1, 1)):
        q, k, v, g = some_inputs(t=t, s=s)
        for mask, bias in (((2, 1, 1, s), (1, 3, t, s)), ((2, 3, t, s), (2, 3, t, s))):
            arguments = q, k, v, tf.cast(normal(*mask) > 0.5, tf.float32), normal(*bias), g
            output, gradients = run(*arguments)
            expected, others = attend_with_gradients(*arguments, plan="whole", causal=True)
            near(output, expected.numpy(), "float32")
            for one, other in zip(gradients[:3], others[:3], strict=True):
                near(one, other.numpy(), "float32")


# Dropout


@every_plan
@every_path
def test_dropout_keeps_its_rate_and_drops_the_same_weights_backward(name, plan):
    """With v = 1 the output's columns are the weights themselves, dropped ones 0."""
    t, s = 23, 29
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((2, 3, t, 4)), rng.standard_normal((2, 3, s, 4))
    v, g = np.broadcast_to(np.eye(s), (2, 3, s, s)), rng.standard_normal((2, 3, t, s))
    run = path(name, plan, dropout=(0.3, (1, 2)))
    inputs = [tf.constant(x) for x in (q, k, v)]
    dropped, (dq, dk, dv) = run(*inputs, None, None, tf.constant(g))
    _, weights = ref.scaled_dot_product_attention(q, k, v)
    factors = dropped.numpy() / weights
    kept = factors > 0.5
    np.testing.assert_allclose(factors, kept / 0.7, atol=1e-5)
    assert abs(kept.mean() - 0.7) < 0.03
    assert len({row.tobytes() for row in kept.reshape(-1, s)}) == 2 * 3 * t, "rows repeat"
    # Output and gradients of attention with these very factors.
    dweights = g @ np.swapaxes(v, -1, -2) * factors
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    np.testing.assert_allclose(dq, dscores @ k / 2, atol=1e-5)
    np.testing.assert_allclose(dk, np.swapaxes(dscores, -1, -2) @ q / 2, atol=1e-5)
    np.testing.assert_allclose(dv, np.swapaxes(dropped, -1, -2) @ g, atol=1e-5)
    again, _ = run(*inputs, None, None, tf.constant(g))
    np.testing.assert_array_equal(again, dropped)


@every_plan
def test_under_causal_no_two_rows_drop_the_same_weights(plan):
    length, shared = 64, 20  # rows from `shared` on have these many keys in common
    q, v = tf.zeros((1, 1, length, 4)), tf.eye(length)[tf.newaxis, tf.newaxis]
    dropped, _ = scaled_dot_product_attention(
        q,
        q,
        v,
        causal=True,
        dropout=(0.5, (1, 2)),
        return_attention_weights=False,
        plan=PLANS[plan],
    )
    kept = dropped.numpy()[0, 0, shared:, :shared] > 0
    assert len({row.tobytes() for row in kept}) == length - shared


@every_plan
def test_another_seed_drops_other_weights(plan):
    q, k, v, g = some_inputs()
    outputs = [
        attend_with_gradients(q, k, v, None, None, g, plan=PLANS[plan], dropout=(0.5, seed))[0]
        for seed in ((1, 2), (1, 3), tf.constant([2, 2]))
    ]
    assert not (outputs[0] == outputs[1]).numpy().all()
    assert not (outputs[0] == outputs[2]).numpy().all()


def test_the_weights_that_are_returned_are_those_before_dropout():
    q, k, v, _ = some_inputs()
    _, weights = scaled_dot_product_attention(q, k, v, dropout=(0.5, (1, 2)))
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0, rtol=1e-6)


# The choice


def shape(t, s=None):
    return tf.TensorShape((1, 8, t, 64)), tf.TensorShape((1, 8, s or t, 64))


@pytest.mark.parametrize(
    ("lengths", "weights", "plain", "by_xla"),
    [
        ((128,), False, "whole", "whole"),
        ((16384,), True, "whole", "whole"),
        ((1448,), False, "whole", "whole"),  # 8 x 1448 x 1448 < 2 ** 24 < 8 x 1449 x 1449
        ((1449,), False, "rowwise", "blockwise"),
        ((16384,), False, "rowwise", "blockwise"),
        ((1, 16384), False, "whole", "whole"),
        ((None, 16384), False, "whole", "whole"),
    ],
)
def test_auto_chooses_by_lengths_and_weights(lengths, weights, plain, by_xla):
    assert choose_plan("auto", *shape(*lengths), weights, compiled=False).name == plain
    assert choose_plan("auto", *shape(*lengths), weights, compiled=True).name == by_xla


def test_an_unknown_batch_counts_as_one():
    long = tf.TensorShape((None, 8, 1449, 64))
    assert choose_plan("auto", long, long, False, compiled=False).name == "rowwise"


def test_a_plan_may_be_forced_and_preferred():
    def chosen(plan, weights=False):
        return choose_plan(plan, *shape(3), weights, compiled=False)

    assert chosen("blockwise") == AttentionPlan("blockwise")
    mine = AttentionPlan("rowwise", most_scores=57)
    with attention_plan(mine):
        assert chosen("auto") == mine
        assert chosen("whole").name == "whole"
        assert chosen("auto", weights=True).name == "whole"
        with attention_plan("auto"):
            assert chosen("auto").name == "whole"
    assert chosen("auto").name == "whole"


def test_a_preferred_plan_reaches_the_layers():
    layer = EncoderLayer(8, 2, 16)
    x = normal(2, 5, 8)
    expected = layer(x, mask=create_padding_mask([[1, 1, 0, 1, 1]] * 2))
    before = count_loops(layer, x)
    with attention_plan(AttentionPlan("blockwise", query_block=2, key_block=3)):
        actual = layer(x, mask=create_padding_mask([[1, 1, 0, 1, 1]] * 2))
        assert count_loops(layer, x) > before
    near(actual, expected.numpy(), "float32")


def count_loops(layer, x):
    graph = tf.function(lambda x: layer(x)).get_concrete_function(x).graph
    return sum("While" in op.type for op in graph.get_operations())


# Bad input


@pytest.mark.parametrize("plan", ["flash", None, 3, ""])
def test_an_unknown_plan_is_refused(plan):
    q, k, v, _ = some_inputs()
    with pytest.raises(ValueError, match='plan: expected "auto", "whole", "rowwise"'):
        scaled_dot_product_attention(q, k, v, plan=plan)
    with (
        pytest.raises(ValueError, match='plan: expected "auto", "whole", "rowwise"'),
        attention_plan(plan),
    ):
        pass


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "64"])
@pytest.mark.parametrize("field", ["most_scores", "query_block", "key_block"])
def test_a_block_size_is_a_positive_integer(field, size):
    with pytest.raises(ValueError, match=f"{field}: expected a positive integer, got {size!r}"):
        AttentionPlan("blockwise", **{field: size})


def test_a_plan_without_weights_is_refused_where_they_are_wanted():
    q, k, v, _ = some_inputs()
    with pytest.raises(ValueError, match="plan.*never makes the attention weights.*Pass"):
        scaled_dot_product_attention(q, k, v, plan="blockwise")


@pytest.mark.parametrize(
    "bias",
    [tf.zeros((3, 7, 10)), tf.zeros((1, 1, 2, 3, 7, 11)), tf.zeros((7, 11), tf.int32)],
    ids=["lengths", "rank", "dtype"],
)
def test_a_bias_that_does_not_broadcast_is_refused(bias):
    q, k, v, _ = some_inputs()
    message = r"bias: expected floats that broadcast to the scores \(2, 3, 7, 11\)"
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(q, k, v, bias=bias)


@pytest.mark.parametrize(
    ("dropout", "message"),
    [
        ((1.0, (1, 2)), "dropout: expected a rate of at least 0 and below 1, got 1.0"),
        ((-0.1, (1, 2)), "dropout: expected a rate"),
        ((0.1, (1, 2, 3)), r"dropout: .*seed of two integers, got a seed of int32 \(3,\)"),
        ((0.1, (1.0, 2.0)), r"dropout: .*seed of two integers, got a seed of float32 \(2,\)"),
    ],
)
def test_a_dropout_that_cannot_be_is_refused(dropout, message):
    q, k, v, _ = some_inputs()
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(q, k, v, dropout=dropout)


# The cached step


@every_dtype
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_cached_steps_give_the_rows_of_causal_attention(dtype, jit, with_bias):
    q, k, v, _ = some_inputs(dtype, t=11)
    bias = normal(2, 1, 11, 11, seed=7) if with_bias else None
    exact = [tf.cast(x, tf.float64).numpy() for x in (q, k, v)]
    future = np.arange(11) > np.arange(11)[:, None]
    given = 0.0 if bias is None else bias.numpy().astype(np.float64)
    expected, _ = ref.scaled_dot_product_attention(*exact, future, given)
    # What stands in the cache from `position` on must not matter.
    cache = tuple(tf.cast(tf.fill((2, 3, 11, 4), number), dtype) for number in (173.0, -3e4))
    for t in range(11):
        at = slice(t, t + 1)
        row = None if bias is None else bias[:, :, at]
        new = q[:, :, at], k[:, :, at], v[:, :, at]
        output, cache = cached_attention(*new, cache, tf.constant(t), row, jit=jit)
        near(output, expected[:, :, at], dtype)
    np.testing.assert_array_equal(tf.cast(cache[0], tf.float32), tf.cast(k, tf.float32))
    np.testing.assert_array_equal(tf.cast(cache[1], tf.float32), tf.cast(v, tf.float32))


@pytest.mark.parametrize("name", ["q", "keys", "values"])
def test_a_step_takes_one_position(name):
    arguments = dict.fromkeys(("q", "keys", "values"), tf.zeros((2, 3, 1, 4)))
    cache = (tf.zeros((2, 3, 11, 4)),) * 2
    for shape in ((2, 3, 2, 4), (2, 3, 1, 5), (2, 1, 4)):
        with pytest.raises(ValueError, match=f"{name}: expected one position of the cache"):
            cached_attention(**{**arguments, name: tf.zeros(shape)}, cache=cache, position=0)
