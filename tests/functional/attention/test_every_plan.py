"""Every attention plan meets one contract: accuracy, bitwise invariances, gradients.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import functools

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from attention_plans import (
    PLANS,
    TOLERANCE,
    attend_with_gradients,
    every_dtype,
    every_path,
    every_plan,
    near,
    normal,
    options_of,
    path,
    some_inputs,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_gradients import attention_gradients

from tf_transformer import (
    AttentionPlan,
    create_look_ahead_mask,
    scaled_dot_product_attention,
)
from tf_transformer.functional.attention.by_distance import ByDistance

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


@st.composite
def problems(draw):
    """Draw the arguments of one attention call: N(0, 1) values, any kind of mask and bias."""
    b, n, t, s, h = draw(st.sampled_from(SHAPES))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    shapes = {"q": (b, n, t, h), "k": (b, n, s, h), "v": (b, n, s, h + 2), "g": (b, n, t, h + 2)}
    problem = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    shape = MASKS[draw(st.sampled_from(sorted(MASKS)))](b, n, t, s)
    share = draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))  # none to all blocked
    problem["mask"] = None if shape is None else (rng.random(shape) < share).astype(np.float32)
    shape = BIASES[draw(st.sampled_from(sorted(BIASES)))](b, n, t, s)
    problem["bias"] = None if shape is None else rng.standard_normal(shape)
    problem["causal"] = draw(st.booleans())
    problem["window"] = draw(st.sampled_from([None, 1, 2, 5]))
    return problem


def check(problem, dtype, name, plan):
    """Check contract points 1, 2, 5, 6: output and gradients close to float64 for any mask."""
    names = ["q", "k", "v"] + ([] if problem["bias"] is None else ["bias"])
    given = {x: tf.cast(problem[x], dtype) for x in (*names, "g")}
    options, window = {"causal": problem["causal"]}, problem["window"]
    if window is not None and plan.startswith(("whole", "windowed")):
        options["window"] = window
    run = path(name, plan, **options)
    mask = None if problem["mask"] is None else tf.constant(problem["mask"])
    output, gradients = run(*(given.get(x) for x in "qkv"), mask, given.get("bias"), given["g"])
    exact = {x: tf.cast(given[x], tf.float64).numpy() for x in given}
    (t, s), blocked = (exact["q"].shape[2], exact["k"].shape[2]), np.zeros(1)
    if problem["mask"] is not None:
        blocked = problem["mask"] != 0
    if problem["causal"]:
        blocked = np.maximum(blocked, np.arange(s) > np.arange(t)[:, None])
    if "window" in options:
        blocked = np.maximum(blocked, np.abs(np.arange(s) - np.arange(t)[:, None]) > window)
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


@pytest.mark.slow
@several(max_examples=18)
@given(problems(), st.sampled_from(sorted(TOLERANCE)), st.sampled_from(sorted(PLANS)))
def test_eager_and_graph_are_near_float64(problem, dtype, plan):
    for name in ("eager", "graph"):
        check(problem, dtype, name, plan)


@pytest.mark.slow
@several(max_examples=14)
@given(
    problems(),
    st.sampled_from(sorted(TOLERANCE)),
    st.sampled_from(sorted(PLANS)),
    st.sampled_from(["xla", "core_xla"]),
)
def test_xla_is_near_float64(problem, dtype, plan, name):
    check(problem, dtype, name, plan)


@pytest.mark.one_of(10)
@every_dtype
@every_plan
@every_path
def test_scores_of_30000_stay_finite(name, plan, dtype):
    q = tf.cast(np.full((2, 3, 7, 4), 128.0), dtype)  # 4 * 128^2 / sqrt(4) = 32768
    k = tf.concat([q, -q[:, :, :4]], axis=2)
    _, _, v, g = some_inputs(dtype)
    mask = tf.constant(np.arange(11) < 4, tf.float32)  # the unmasked keys score +30000 and -30000
    mask = tf.reshape(mask, (1, 1, 1, 11))
    output, gradients = path(name, plan)(q, k, v, mask, None, g)
    exact = (tf.cast(x, tf.float64).numpy() for x in (q, k, v))
    near(output, ref.scaled_dot_product_attention(*exact, mask)[0], dtype)
    assert all(np.isfinite(tf.cast(gradient, tf.float32)).all() for gradient in gradients)


@pytest.mark.slow
@pytest.mark.one_of(10)
@every_plan
@every_path
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_with_every_key_blocked_is_the_plain_average(name, plan, causal):
    q, k, v, g = some_inputs()
    blocked = np.zeros((2, 1, 7, 11), np.float32)
    blocked[1, :, 4] = 1  # row 4 of one sentence: every key blocked, future ones too
    run = path(name, plan, causal=causal)
    output, (dq, dk, _) = run(q, k, v, tf.constant(blocked), None, g)
    near(output[1, :, 4], v[1].numpy().astype(np.float64).mean(axis=1), "float32")
    assert not dq[1, :, 4].numpy().any(), "a uniform average does not depend on q"
    one_less, (_, other_dk, _) = run(
        tf.where(blocked[..., :1] == 1, 9.0, q), k, v, blocked, None, g
    )
    np.testing.assert_array_equal(other_dk, dk)
    np.testing.assert_array_equal(one_less, output)


@pytest.mark.one_of(4)
@every_plan
@pytest.mark.parametrize("causal", [False, True])
def test_an_average_in_float16_does_not_overflow(plan, causal):
    q = tf.zeros((1, 1, 11, 4), tf.float16)
    v = tf.fill((1, 1, 11, 4), tf.constant(3e4, tf.float16))  # the sum of three is infinite
    blocked = tf.constant(np.arange(11) < 7, tf.float32)[tf.newaxis, tf.newaxis, tf.newaxis]
    for mask in (blocked, tf.ones_like(blocked)):
        output, _ = path("graph", plan, causal=causal)(q, q, v, mask, None, q)
        np.testing.assert_allclose(output, v, rtol=2e-3)


@pytest.mark.one_of(10)
@every_plan
@every_path
def test_no_bias_frees_what_is_blocked(name, plan):
    q, k, v, g = some_inputs()
    blocked = tf.constant(np.arange(11) != 2, tf.float32)[tf.newaxis, tf.newaxis, tf.newaxis]
    attend = functools.partial(scaled_dot_product_attention, return_attention_weights=False)
    attend = functools.partial(attend, jit=name == "xla", **options_of(plan))
    for low in (-3.4e38, -np.inf):
        table = ByDistance(tf.fill((3, 5), low), has_gradient=False)
        by_distance, _ = attend(q, k, v, blocked, bias=table)
        np.testing.assert_allclose(by_distance, np.broadcast_to(v[:, :, 2:3], q.shape), rtol=1e-6)
        bias = tf.fill((1, 1, 7, 11), low)
        output, gradients = path(name, plan)(q, k, v, blocked, bias, g)
        expected = np.broadcast_to(v[:, :, 2:3], output.shape)
        np.testing.assert_allclose(output, expected, rtol=1e-6)
        assert all(np.isfinite(gradient).all() for gradient in gradients)
        other, _ = path(name, plan)(
            q, k, tf.where(blocked[0, 0, 0, :, None] == 1, 9.0, v), blocked, bias, g
        )
        np.testing.assert_array_equal(other, output)


@pytest.mark.one_of(10)
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


@pytest.mark.one_of(10)
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


@pytest.mark.one_of(4)
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
    ("plan", "jit"),
    [
        pytest.param(
            AttentionPlan("blockwise", query_block=64, key_block=128), False, id="blockwise"
        ),
        pytest.param(AttentionPlan("rowwise", most_scores=2**15), False, id="rowwise"),
        pytest.param("whole", True, id="whole by XLA", marks=pytest.mark.one_of(4)),
    ],
)
def test_long_gradients_equal_those_of_the_whole_plan(plan, jit, causal):
    q, k, v, g = some_inputs(t=521, s=601)  # XLA adds up more than 512 rows in parts
    mask = np.zeros((2, 1, 1, 601), np.float32)
    mask[1, ..., 500:] = 1
    run = functools.partial(attend_with_gradients, q, k, v, mask, None, g, causal=causal)
    output, gradients = run(plan=plan, jit=jit)
    expected, others = run(plan="whole", jit=False)
    near(output, expected.numpy(), "float32")
    for one, other in zip(gradients, others, strict=True):
        near(one, other.numpy(), "float32")


@pytest.mark.one_of(10)
@every_plan
def test_batch_and_lengths_may_be_unknown_until_the_graph_runs(plan):
    @tf.function(
        input_signature=[tf.TensorSpec([None, 3, None, 4])] * 3
        + [tf.TensorSpec([None] * 4)] * 2
        + [tf.TensorSpec([None, 3, None, 4])],
        autograph=False,
    )
    def run(*arguments):
        return attend_with_gradients(*arguments, **options_of(plan), causal=True)

    for t, s in ((7, 11), (3, 2), (1, 1)):
        q, k, v, g = some_inputs(t=t, s=s)
        for mask, bias in (((2, 1, 1, s), (1, 3, t, s)), ((2, 3, t, s), (2, 3, t, s))):
            arguments = q, k, v, tf.cast(normal(*mask) > 0.5, tf.float32), normal(*bias), g
            output, gradients = run(*arguments)
            expected, others = attend_with_gradients(*arguments, plan="whole", causal=True)
            near(output, expected.numpy(), "float32")
            for one, other in zip(gradients[:3], others[:3], strict=True):
                near(one, other.numpy(), "float32")


@pytest.mark.one_of(10)
@every_plan
def test_an_empty_batch_has_empty_gradients_and_its_bias_zeros(plan):
    @tf.function(
        input_signature=[tf.TensorSpec([None, 3, None, 4])] * 4 + [tf.TensorSpec([None] * 4)],
        autograph=False,
    )
    def graph(q, k, v, g, bias):
        return attend_with_gradients(q, k, v, None, bias, g, **options_of(plan))

    q, k, v, g = (x[:0] for x in some_inputs())
    for bias in (tf.ones((0, 3, 7, 11)), tf.ones((1, 1, 7, 11))):
        eager = path("eager", plan)(q, k, v, None, bias, g)
        for output, gradients in (eager, graph(q, k, v, g, bias)):
            assert output.shape == q.shape
            for x, gradient in zip((q, k, v, bias), gradients, strict=True):
                np.testing.assert_array_equal(gradient, tf.zeros_like(x))


def test_gradients_through_the_weights_are_those_of_float64():
    q, k, v, g = some_inputs()
    up = normal(2, 3, 7, 11, seed=4)
    mask = tf.constant(np.arange(11) % 3 == 1, tf.float32)[tf.newaxis]

    def gradients(dtype, jit):
        inputs = [tf.cast(x, dtype) for x in (q, k, v)]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output, weights = scaled_dot_product_attention(*inputs, mask, jit=jit)
            pulls = output * tf.cast(g, dtype), weights * tf.cast(up, dtype)
            total = sum(map(tf.reduce_sum, pulls))
        return tape.gradient(total, inputs)

    expected = gradients(tf.float64, jit=False)
    for jit in (False, True):
        for actual, exact in zip(gradients(tf.float32, jit), expected, strict=True):
            near(actual, exact, "float32")


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", ["eager", "graph", "xla", "core_xla"])
@pytest.mark.parametrize("plan", sorted(PLANS))
def test_float64_stays_float64_next_to_a_mask(plan, name):
    rng = np.random.default_rng(7)
    b, n, t, s, h = SHAPES[0]
    shapes = (b, n, t, h), (b, n, s, h), (b, n, s, h), (b, n, t, h)
    q, k, v, g = map(rng.standard_normal, shapes)
    bias, mask = rng.standard_normal((1, n, t, s)), (rng.random((b, 1, 1, s)) < 0.4) * 1.0
    run = path(name, plan, causal=True)
    output, gradients = run(*map(tf.constant, (q, k, v, mask, bias, g)))
    blocked = np.maximum(mask, np.arange(s) > np.arange(t)[:, None])
    expected, _ = ref.scaled_dot_product_attention(q, k, v, blocked, bias)
    assert output.dtype == tf.float64
    np.testing.assert_allclose(output, expected, atol=1e-13, rtol=1e-12)
    exact = attention_gradients(q, k, v, g, blocked, bias)
    for x, gradient in zip(("q", "k", "v", "bias"), gradients, strict=True):
        assert gradient.dtype == tf.float64
        np.testing.assert_allclose(
            gradient, exact[x].reshape(gradient.shape), atol=1e-12, rtol=1e-12
        )


@pytest.mark.one_of(10)
@every_plan
def test_a_compiled_core_has_gradients_wherever_it_was_traced_first(plan):
    """In a graph, in a program of XLA, in eager mode: one shape after the other."""
    inputs = [*some_inputs(t=13)[:3], normal(1, 1, 13, 11) > 1, None, some_inputs(t=13)[3]]
    run = functools.partial(attend_with_gradients, **options_of(plan), jit=True)
    expected = attend_with_gradients(*inputs, plan="whole", jit=False)
    for wrap in (
        functools.partial(tf.function, autograph=False),
        functools.partial(tf.function, autograph=False, jit_compile=True),
        functools.partial(tf.function, autograph=False),
        lambda function: function,
    ):
        actual = wrap(functools.partial(run))(*inputs)
        for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            near(one, other, "float32")


@pytest.mark.slow
def test_second_gradients_by_xla_are_those_of_float64():
    inputs = some_inputs()[:3]

    def second(dtype, jit):
        q, k, v = (tf.cast(x, dtype) for x in inputs)
        with tf.GradientTape() as outer:
            outer.watch(k)
            with tf.GradientTape() as inner:
                inner.watch([q, k, v])
                output, _ = scaled_dot_product_attention(q, k, v, jit=jit)
                total = tf.reduce_sum(output**2)
            penalty = sum(tf.reduce_sum(g**2) for g in inner.gradient(total, [q, k, v]))
        return outer.gradient(penalty, k)

    exact = second(tf.float64, jit=False).numpy()
    np.testing.assert_allclose(second(tf.float32, jit=True), exact, rtol=1e-4, atol=1e-4)
