"""Complex attention: the equation, the contract of numerics, gradients, every plan.

Axes: B=2 batch, N=3 heads, T=7 target length, S=11 source length, H=5 head width.
"""

import functools

import numpy as np
import pytest
import reference_complex as ref
import tensorflow as tf

from tf_transformer.functional.attention.complex_attention import complex_attention
from tf_transformer.functional.attention.plan import AttentionPlan, attention_plan

pytestmark = [
    pytest.mark.one_of(10, "parts"),
    pytest.mark.one_of(10),  # of the cases of each test
]

B, N, T, S, H = 2, 3, 7, 11, 5
PLANS = {
    "whole": "whole",
    "rowwise, 1 query": AttentionPlan("rowwise", most_scores=1),
    "rowwise, 3 queries": AttentionPlan("rowwise", most_scores=3 * B * N * S),
    "blockwise": AttentionPlan("blockwise", most_scores=2 * B * N * S),
}
every_plan = pytest.mark.parametrize("plan", PLANS)
every_path = pytest.mark.parametrize("path", ["eager", "graph", "xla"])


def normal(*shape, seed=0):
    """Complex numbers whose parts are N(0, 1)."""
    rng = np.random.default_rng((seed, *shape))
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def inputs():
    """q, k, v and a cotangent of the output."""
    return [normal(B, N, *shape, seed=i) for i, shape in enumerate(SHAPES)]


SHAPES = ((T, H), (S, H), (S, H + 2), (T, H + 2))
PADDING = np.zeros((B, 1, 1, S), np.float32)
PADDING[0, ..., 2] = PADDING[1, ..., 7:] = 1
BY_QUERY = (np.random.default_rng(3).random((B, N, T, S)) < 0.4).astype(np.float32)
BY_QUERY[1, 0, 4] = 1  # a row with every key blocked
MASKS = {"none": None, "all": BY_QUERY}


@functools.cache
def attend(path, plan):
    """A function of both parts of q, k, v, of g and a mask; see `run`."""

    def run(parts, g, mask):
        with tf.GradientTape() as tape:
            tape.watch(parts)
            q, k, v = (tf.complex(*parts[i : i + 2]) for i in (0, 2, 4))
            output, _ = complex_attention(
                q, k, v, mask, return_attention_weights=False, plan=PLANS[plan]
            )
            loss = tf.reduce_sum(tf.math.real(output * tf.math.conj(g)))
        return output, tape.gradient(loss, parts)

    return run if path == "eager" else tf.function(run, autograph=False, jit_compile=path == "xla")


def run(path, plan, q, k, v, g, mask, dtype="complex64"):
    """Output and gradients of Re(sum(output * conj(g))) with respect to both parts of q, k, v."""
    parts = [x for z in (q, k, v) for x in (np.real(z), np.imag(z))]
    real = {"complex64": "float32", "complex128": "float64"}[dtype]
    parts = [tf.constant(x, real) for x in parts]
    mask = None if mask is None else tf.constant(mask)
    return attend(path, plan)(parts, tf.constant(g, dtype), mask)


def numeric_gradient(which, part, direction, mask, step=1e-6):
    """The slope of the reference's loss along a direction of one part of one input."""

    def loss(amount):
        q, k, v, g = inputs()
        moved = [q, k, v]
        moved[which] = moved[which] + amount * direction * (1j if part else 1)
        return np.sum(ref.attention(*moved, mask)[0] * np.conj(g)).real

    return (loss(step) - loss(-step)) / (2 * step)


@pytest.mark.one_of(10)
@every_path
@every_plan
@pytest.mark.parametrize("mask", MASKS)
def test_output_and_gradients_are_those_of_the_equations(path, plan, mask):
    mask = MASKS[mask]
    output, gradients = run(path, plan, *inputs(), mask)
    expected, _ = ref.attention(*inputs()[:3], mask)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    for at, gradient in enumerate(gradients):
        assert np.isfinite(gradient).all()
        direction = np.random.default_rng(at).standard_normal(gradient.shape)
        slope = numeric_gradient(at // 2, at % 2, direction, mask)
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-4)


def test_each_entry_of_the_gradients_in_complex128():
    _, gradients = run("eager", "rowwise, 3 queries", *inputs(), BY_QUERY, "complex128")
    rng = np.random.default_rng(5)
    for at, gradient in enumerate(gradients):
        for _ in range(5):
            place = tuple(rng.integers(size) for size in gradient.shape)
            direction = np.zeros(gradient.shape)
            direction[place] = 1
            slope = numeric_gradient(at // 2, at % 2, direction, BY_QUERY)
            np.testing.assert_allclose(gradient.numpy()[place], slope, rtol=1e-6, atol=1e-8)


def test_weights_are_real_and_sum_to_one():
    q, k, v, _ = (tf.constant(x, tf.complex64) for x in inputs())
    output, weights = complex_attention(q, k, v, tf.constant(BY_QUERY))
    expected, exact = ref.attention(*inputs()[:3], BY_QUERY)
    assert weights.dtype == tf.float32
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weights, exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tf.reduce_sum(weights, -1), np.ones((B, N, T)), rtol=1e-6)
    free = ~BY_QUERY.all(-1, keepdims=True)
    assert not weights.numpy()[(BY_QUERY == 1) & free].any()
    np.testing.assert_allclose(weights[1, 0, 4], np.full(S, 1 / S), rtol=1e-6)


def test_complex128_is_exact():
    output, _ = run("eager", "whole", *inputs(), BY_QUERY, "complex128")
    assert output.dtype == tf.complex128
    expected, _ = ref.attention(*inputs()[:3], BY_QUERY)
    np.testing.assert_allclose(output, expected, rtol=1e-13, atol=1e-13)


@every_path
@every_plan
def test_what_is_blocked_changes_no_bit(path, plan):
    q, k, v, g = inputs()
    output, gradients = run(path, plan, q, k, v, g, PADDING)
    column = np.broadcast_to(PADDING[:, :, 0, :, None], (B, N, S, 1)) == 1
    others = np.where(column, 173 - 9j, k), np.where(column, -3e4j, v)
    other, changed = run(path, plan, q, *others, g, PADDING)
    np.testing.assert_array_equal(other, output)
    for one, before in zip(changed[:2], gradients[:2], strict=True):
        np.testing.assert_array_equal(one, before)
    for gradient in changed[2:]:
        assert not gradient.numpy()[np.broadcast_to(column, gradient.shape)].any()


@every_path
@every_plan
def test_products_of_zero_have_finite_gradients(path, plan):
    q, k, v, g = inputs()
    _, gradients = run(path, plan, np.zeros_like(q), k, v, g, None)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert not gradients[0].numpy().any()  # a modulus has no slope at 0


@every_plan
def test_scores_of_30000_stay_finite(plan):
    q = np.full((B, N, T, H), 128 + 128j)
    k = np.concatenate([q, q / 128], axis=2)[:, :, :S]
    _, _, v, g = inputs()
    output, gradients = run("eager", plan, q, k, v, g, None)
    np.testing.assert_allclose(output, ref.attention(q, k, v)[0], rtol=1e-5, atol=1e-5)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_the_weights_depend_on_angles_between_words_alone():
    """Turning query and keys by one angle changes no weight; conjugating the keys does."""
    q, k, v, _ = (tf.constant(x, tf.complex128) for x in inputs())
    _, weights = complex_attention(q, k, v)
    turn = tf.constant(np.exp(1j * np.arange(H)), tf.complex128)  # each dimension by another
    _, turned = complex_attention(q * turn, k * turn, v)
    np.testing.assert_allclose(turned, weights, rtol=1e-12)
    _, other = complex_attention(q, tf.math.conj(k), v)
    assert not np.allclose(other, weights, atol=1e-2)


def test_bool_and_float_masks_are_opposite():
    q, k, v, _ = (tf.constant(x, tf.complex64) for x in inputs())
    blocked, _ = complex_attention(q, k, v, tf.constant(PADDING))
    keep, _ = complex_attention(q, k, v, tf.constant(PADDING[:, 0, 0] == 0))
    np.testing.assert_array_equal(blocked, keep)
    with pytest.raises(ValueError, match="mask: expected float .*int32"):
        complex_attention(q, k, v, tf.constant(PADDING, tf.int32))
    with pytest.raises(ValueError, match="mask: expected a shape that broadcasts"):
        complex_attention(q, k, v, tf.zeros((B, 1, 1, S + 1)))


def test_unknown_lengths():
    loose = [tf.TensorSpec((None, N, None, shape[-1]), tf.complex64) for shape in SHAPES[:3]]
    loose.append(tf.TensorSpec((None, None, None, None)))
    for plan in PLANS.values():

        @tf.function(input_signature=loose, autograph=False)
        def attend(q, k, v, mask, plan=plan):
            with tf.GradientTape() as tape:
                tape.watch([q, k, v])
                output, _ = complex_attention(
                    q, k, v, mask, return_attention_weights=False, plan=plan
                )
                loss = tf.reduce_sum(tf.math.real(output))
            return output, tape.gradient(loss, [q, k, v])

        for mask in (PADDING, BY_QUERY):
            output, gradients = attend(*(tf.constant(x, tf.complex64) for x in inputs()[:3]), mask)
            expected, _ = ref.attention(*inputs()[:3], mask)
            np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
            assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("name", ["rowwise", "blockwise"])
def test_no_plan_in_blocks_makes_all_scores(name):
    """No tensor of the graph, forward or backward, has T x S elements or more."""
    length = 512
    q = tf.zeros((1, 2, length, 4), tf.complex64)

    def attend(q):
        with tf.GradientTape() as tape:
            tape.watch(q)
            output, _ = complex_attention(q, q, q, return_attention_weights=False)
            loss = tf.reduce_sum(tf.math.real(output))
        return tape.gradient(loss, q)

    sizes = {}
    for plan in (AttentionPlan(name, most_scores=2**12), AttentionPlan("whole")):
        with attention_plan(plan):
            graph = tf.function(attend, autograph=False).get_concrete_function(q).graph
        tensors = [
            tensor
            for inner in (graph, *(f.graph for f in graph._functions.values()))
            for operation in inner.get_operations()
            for tensor in operation.outputs
            if tensor.shape.rank is not None
        ]
        sizes[plan.name] = max(tensor.shape.num_elements() or 0 for tensor in tensors)
    assert sizes[name] < length**2 <= sizes["whole"]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((T, H), (S, H + 1), (S, H)), r"q, k, v: expected .*got .*7, 5.*11, 6"),
        (((T, H), (S, H), (S - 1, H)), "q, k, v: expected"),
        (((2, T, H), (3, S, H), (3, S, H)), "the same leading axes"),
        (((T, H), (1, S, H), (1, S, H)), "q, k, v: expected"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=message):
        complex_attention(*(tf.zeros(shape, tf.complex64) for shape in shapes))


def test_real_inputs_and_weights_of_a_plan_in_blocks():
    q, k, v, _ = (tf.constant(x, tf.complex64) for x in inputs())
    with pytest.raises(ValueError, match="expected complex tensors .*float32.*tf.complex64"):
        complex_attention(q, tf.math.real(k), v)
    with pytest.raises(ValueError, match="complex tensors of one dtype"):
        complex_attention(q, k, tf.cast(v, tf.complex128))
    with pytest.raises(ValueError, match='plan: .*, got "rowwise", which does not compute'):
        complex_attention(q, k, v, plan="rowwise")
