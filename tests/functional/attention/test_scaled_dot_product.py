"""The attention core: reference vectors, numerics contract on every path, invariances, bad input.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import functools

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from loading import case, close, vectors
from vector_checks import ATTENTION_CASES, LAYER_CHECKS, attention_case, check_attention

from tf_transformer import scaled_dot_product_attention
from tf_transformer.functional.attention import scaled_dot_product as module

JITS = (True, False, "auto")
# Point 5 of the numerics contract, for N(0, 1) inputs.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}


def attend_with_gradients(q, k, v, mask, cotangent, **options):
    """Return output, weights, and gradients of sum(output * cotangent) w.r.t. q, k and v."""
    with tf.GradientTape() as tape:
        tape.watch([q, k, v])
        output, weights = scaled_dot_product_attention(q, k, v, mask, **options)
        projected = tf.reduce_sum(tf.cast(output * cotangent, tf.float32))
    return output, weights, tape.gradient(projected, [q, k, v])


# Compiled once per dtype: every test below uses the shapes of `some_inputs`.
graph = tf.function(attend_with_gradients, autograph=False)
xla = tf.function(attend_with_gradients, autograph=False, jit_compile=True)
core_xla = functools.partial(attend_with_gradients, jit=True)
PATHS = {"eager": attend_with_gradients, "core_xla": core_xla, "graph": graph, "xla": xla}
every_path = pytest.mark.parametrize("path", PATHS)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def normal(*shape, seed=3, dtype="float32"):
    """Return a tensor of N(0, 1) values; `float64` of it is exactly the library's input."""
    return tf.cast(np.random.default_rng(seed).standard_normal(shape), dtype)


def float64(x):
    return tf.cast(x, tf.float64).numpy()


def some_inputs(dtype="float32"):
    """Return q, k, v, a float mask with an unmasked key in every row, and an output cotangent."""
    q, cotangent = (normal(2, 7, 3, 4, seed=seed, dtype=dtype) for seed in (0, 1))
    k, v = (normal(2, 7, 5, 4, seed=seed, dtype=dtype) for seed in (2, 3))
    mask = np.zeros((2, 1, 3, 5), np.float32)
    mask[0, 0, :, 1] = mask[1, 0, :, 3:] = 1
    mask[1, 0, 0, 1:] = 1
    return q, k, v, tf.constant(mask), cotangent


# Reference vectors


@pytest.mark.parametrize("jit", JITS)
@pytest.mark.parametrize("name", ATTENTION_CASES)
def test_attention_matches_the_vectors(name, jit):
    check_attention(lambda *inputs: scaled_dot_product_attention(*inputs, jit=jit), name)


@pytest.mark.parametrize("name", [name for name in ATTENTION_CASES if name != "open"])
def test_a_bool_mask_is_the_float_mask_turned_round(name):
    check_attention(
        # A rank-2 bool mask means (B, S), so the look-ahead mask is expanded to rank 4.
        lambda q, k, v, mask: scaled_dot_product_attention(
            q, k, v, np.reshape(mask == 0, (1,) * (4 - mask.ndim) + mask.shape)
        ),
        name,
    )


def test_the_bool_mask_of_keras_spreads_over_heads_and_queries():
    def attend(q, k, v, mask):
        return scaled_dot_product_attention(q, k, v, mask[:, 0, 0] == 0)  # (B, S)

    check_attention(attend, "padding")


def test_a_bool_mask_per_query_spreads_over_heads():
    def attend(q, k, v, mask):
        return scaled_dot_product_attention(q, k, v, mask[:, 0] == 0)  # (B, T, S)

    check_attention(attend, "blocked_row")


@pytest.mark.parametrize("jit", JITS)
def test_gradients_match_the_vectors(jit):
    (q, k, v, mask), _ = attention_case("padding")
    expected = case("attention", "padding")
    inputs = [tf.constant(a) for a in (q, k, v)]
    *_, gradients = attend_with_gradients(*inputs, mask, expected["cotangent"], jit=jit)
    for name, gradient in zip("qkv", gradients, strict=True):
        close(gradient, expected[f"grad_{name}"])


def test_float64_inputs_are_computed_in_float64():
    (q, k, v, mask), (output, weights) = attention_case("padding")
    inputs = [a.astype(np.float64) for a in (q, k, v)]
    actual, actual_weights = scaled_dot_product_attention(*inputs, mask)
    assert actual.dtype == actual_weights.dtype == tf.float64
    close(actual, output, 1e-12)
    close(actual_weights, weights, 1e-12)


# Mutation tests: the comparisons above must fail for a wrong core


def flipped_mask(q, k, v, mask=None, **options):
    mask = None if mask is None else 1.0 - tf.convert_to_tensor(mask)
    return scaled_dot_product_attention(q, k, v, mask, **options)


def no_mask(q, k, v, mask=None, **options):
    return scaled_dot_product_attention(q, k, v, None, **options)


def no_scale(q, k, v, mask=None, **options):
    q = tf.convert_to_tensor(q) * q.shape[-1] ** 0.5  # undoes the division by sqrt(H)
    return scaled_dot_product_attention(q, k, v, mask, **options)


MUTANTS = {"flipped_mask": flipped_mask, "no_mask": no_mask, "no_scale": no_scale}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("name", [name for name in ATTENTION_CASES if name != "open"])
def test_the_vectors_catch_a_wrong_core(name, mutant):
    with pytest.raises(AssertionError, match="Mismatched elements"):
        check_attention(MUTANTS[mutant], name)


@pytest.mark.parametrize("mutant", ["flipped_mask", "no_scale"])
@pytest.mark.parametrize("name", [name for name in LAYER_CHECKS if name != "tied_logits"])
def test_the_vectors_catch_a_layer_on_a_wrong_core(name, mutant, monkeypatch):
    monkeypatch.setattr(module, "scaled_dot_product_attention", MUTANTS[mutant])
    with pytest.raises(AssertionError, match="Mismatched elements"):
        LAYER_CHECKS[name]()


# The numerics contract, point by point


@pytest.mark.one_of(10)
@every_dtype
@every_path
def test_contract_1_5_6_results_and_gradients_close_to_float64(path, dtype):
    q, k, v, mask, cotangent = some_inputs(dtype)
    output, weights, gradients = PATHS[path](q, k, v, mask, cotangent)
    assert output.dtype == weights.dtype == tf.as_dtype(dtype)
    inputs = {"q": float64(q), "k": float64(k), "v": float64(v)}
    expected = ref.scaled_dot_product_attention(**inputs, blocked=mask)
    close(float64(output), expected[0], TOLERANCE[dtype])
    close(float64(weights), expected[1], TOLERANCE[dtype])
    for gradient, (name, array) in zip(gradients, inputs.items(), strict=True):

        def project(x, name=name):
            output, _ = ref.scaled_dot_product_attention(**{**inputs, name: x}, blocked=mask)
            return (output * float64(cotangent)).sum()

        numerical = ref.numerical_gradient(project, array)
        close(float64(gradient), numerical, TOLERANCE[dtype])


@pytest.mark.one_of(4)
@pytest.mark.parametrize("sign", [1, -1])
@every_dtype
@every_path
def test_contract_1_scores_of_30000_stay_finite(path, dtype, sign):
    _, _, v, mask, cotangent = some_inputs(dtype)
    exact_in_bfloat16 = [128.0, 124.0, 120.0]  # 4 * 128^2 / sqrt(4) = 32768
    q = tf.cast(np.array(exact_in_bfloat16)[:, None] * np.ones((2, 7, 3, 4)), dtype)
    k = tf.concat([q, -q[:, :, :2]], axis=2)
    # With sign -1, some rows have only unmasked scores of -30000: blocked ones must be lower.
    output, weights, gradients = PATHS[path](sign * q, k, v, mask, cotangent)
    expected = ref.scaled_dot_product_attention(*map(float64, (sign * q, k, v)), mask)
    close(float64(output), expected[0], TOLERANCE[dtype])
    close(float64(weights), expected[1], TOLERANCE[dtype])
    assert all(np.isfinite(float64(gradient)).all() for gradient in gradients)


@every_dtype
@every_path
def test_contract_2_a_row_with_every_key_blocked_is_uniform(path, dtype):
    q, k, v, mask, cotangent = some_inputs(dtype)
    fully = np.array(mask)
    fully[1, 0, 1] = 1
    output, weights, gradients = PATHS[path](q, k, v, tf.constant(fully), cotangent)
    row = float64(weights)[1, :, 1]
    # All bitwise equal, and 1/5 up to the rounding of the division.
    assert (row == row[:, :1]).all()
    close(row, np.full((7, 5), 0.2), max(TOLERANCE[dtype] / 5, 1e-6))
    close(float64(output)[1, :, 1], float64(v)[1].mean(axis=1), TOLERANCE[dtype])
    assert all(np.isfinite(float64(gradient)).all() for gradient in gradients)
    # Its weights do not depend on the query.
    assert (float64(gradients[0])[1, :, 1] == 0).all()


@every_dtype
@every_path
def test_contract_3_4_what_is_blocked_weighs_zero_and_changes_no_bit(path, dtype):
    q, k, v, mask, cotangent = some_inputs(dtype)
    # Keys that no query of the sentence may attend to.
    key_blocked = np.broadcast_to(mask.numpy().all(axis=2), (2, 7, 5))[..., None]
    assert key_blocked.any(axis=2).all() and not key_blocked.all()
    output, weights, gradients = PATHS[path](q, k, v, mask, cotangent)
    other_k = tf.where(key_blocked, tf.cast(173.0, dtype), k)
    other_v = tf.where(key_blocked, tf.cast(-3e4, dtype), v)
    changed = PATHS[path](q, other_k, other_v, mask, cotangent)
    np.testing.assert_array_equal(float64(changed[0]), float64(output))
    np.testing.assert_array_equal(float64(changed[1]), float64(weights))
    np.testing.assert_array_equal(float64(changed[2][0]), float64(gradients[0]))
    blocked = np.broadcast_to(mask, weights.shape) == 1
    assert (float64(weights)[blocked] == 0.0).all()
    assert (float64(weights)[~blocked] > 0.0).all()
    for gradient in map(float64, changed[2][1:]):  # keys and values
        assert (gradient[np.broadcast_to(key_blocked, gradient.shape)] == 0.0).all()
        assert gradient.any()


@pytest.mark.parametrize("jit", [True, False])
def test_without_weights_the_output_is_the_same_and_keeps_the_contract(jit):
    def attend(k, v):
        output, none = scaled_dot_product_attention(
            q, k, v, mask, return_attention_weights=False, jit=jit
        )
        assert none is None
        return output

    q, k, v, mask, _ = some_inputs()
    with_weights, _ = scaled_dot_product_attention(q, k, v, mask, jit=jit)
    close(attend(k, v), with_weights, 1e-6)
    key_blocked = mask.numpy().all(axis=2)[..., None]
    changed = attend(tf.where(key_blocked, 173.0, k), tf.where(key_blocked, -3e4, v))
    np.testing.assert_array_equal(changed, attend(k, v))


def test_lengths_and_batch_may_be_unknown_until_the_graph_runs():
    q, k, v, mask, _ = some_inputs()

    @tf.function(
        input_signature=[tf.TensorSpec([None] * 3 + [4])] * 3 + [tf.TensorSpec([None] * 4)],
        autograph=False,
    )
    def attend(q, k, v, mask):
        return scaled_dot_product_attention(q, k, v, mask)

    for rows, length in ((2, 5), (1, 4)):
        arguments = q[:rows], k[:rows, :, :length], v[:rows, :, :length], mask[:rows, ..., :length]
        actual, expected = attend(*arguments), scaled_dot_product_attention(*arguments)
        close(actual[0], expected[0], 1e-6)
        close(actual[1], expected[1], 1e-6)


# Invariances


@settings(max_examples=15, deadline=None)
@given(
    mask=hnp.arrays(np.bool_, (2, 1, 3, 5)),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    seed=st.integers(0, 99),
)
def test_rows_of_weights_sum_to_one_whatever_the_mask(mask, scale, seed):
    q, k, v = normal(2, 2, 3, 4, seed=seed) * scale, normal(2, 2, 5, 4), normal(2, 2, 5, 4)
    output, weights = scaled_dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0, rtol=1e-6)
    free = np.broadcast_to(mask, weights.shape)
    # An average lies between the minimum and the maximum of its values.
    assert (output.numpy() <= v.numpy().max(axis=2, keepdims=True) + 1e-5).all()
    has_free = free.any(-1, keepdims=True)
    assert (weights.numpy()[~free & has_free] == 0.0).all()


def test_a_batch_equals_its_rows_one_by_one():
    q, k, v, mask, _ = some_inputs()
    together, _ = scaled_dot_product_attention(q, k, v, mask)
    for row in range(2):
        at = slice(row, row + 1)
        alone, _ = scaled_dot_product_attention(q[at], k[at], v[at], mask[at])
        close(alone, together[at], 1e-6)


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_any_rank_from_two_on(rank):
    shapes = [(2,) * (rank - 2) + tail for tail in [(3, 4), (5, 4), (5, 6)]]
    q, k, v = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    mask = np.zeros((3, 5), np.float32)
    mask[0, 2:] = mask[1, 0] = 1
    expected = ref.scaled_dot_product_attention(*map(float64, (q, k, v)), mask)
    for actual, array in zip(scaled_dot_product_attention(q, k, v, mask), expected, strict=True):
        close(actual, array)


def test_arrays_and_lists_will_do():
    (q, k, v, mask), (output, _) = attention_case("padding")
    actual, _ = scaled_dot_product_attention(q.tolist(), k.tolist(), v.tolist(), mask.tolist())
    close(actual, output)


# Bad input


def zeros(*shape):
    return tf.zeros(shape)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4,), (4,), (4,)), r"q, k, v: expected three tensors of the same rank.*q \(4,\)"),
        (
            ((2, 3, 4), (5, 4), (5, 4)),
            r"q, k, v: expected three tensors of the same rank.*k \(5, 4\)",
        ),
        (((3, 4), (5, 6), (5, 6)), r"q, k: expected the same width.*q \(3, 4\) and k \(5, 6\)"),
        (((3, 4), (5, 4), (6, 4)), r"k, v: expected one value for each key.*v \(6, 4\)"),
        (((2, 3, 4), (1, 5, 4), (1, 5, 4)), r"q, k: expected the same batch.*k \(1, 5, 4\)"),
    ],
    ids=["rank 1", "ranks", "widths", "lengths", "batches"],
)
def test_shapes_that_do_not_fit_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(*(zeros(*shape) for shape in shapes))


def test_an_unknown_rank_is_refused():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def attend(x):
        return scaled_dot_product_attention(x, x, x)

    with pytest.raises(ValueError, match="q, k, v: expected tensors of known rank"):
        attend.get_concrete_function()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8])
def test_an_integer_mask_is_refused_and_both_conversions_named(dtype):
    q = zeros(2, 7, 3, 4)
    with pytest.raises(ValueError, match="mask: expected float") as error:
        scaled_dot_product_attention(q, q, q, tf.zeros((3, 3), dtype))
    for part in (dtype.name, "tf.cast(mask, tf.float32)", "tf.cast(mask, tf.bool)"):
        assert part in str(error.value)


@pytest.mark.parametrize("jit", ["yes", None, "AUTO"])
def test_an_unknown_jit_is_refused(jit):
    with pytest.raises(ValueError, match=f'jit: expected True, False or "auto", got {jit!r}'):
        scaled_dot_product_attention(*[zeros(3, 4)] * 3, jit=jit)


def test_integer_inputs_are_refused():
    with pytest.raises(ValueError, match="q.*expected float.*int32"):
        scaled_dot_product_attention(*[tf.ones((3, 4), tf.int32)] * 3)
    x = zeros(3, 4)
    with pytest.raises(ValueError, match="float tensors of one dtype, got .*float16"):
        scaled_dot_product_attention(x, x, tf.cast(x, tf.float16))


def test_the_vectors_have_masks_of_both_kinds():
    masks = [a for name, a in vectors("attention").items() if name.endswith("mask")]
    assert len(masks) == 4
    assert all({0.0, 1.0} == set(np.unique(mask)) for mask in masks)
