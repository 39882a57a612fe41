"""Attention restricted to a window: full attention with a band as its mask, without its cost.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import functools

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from attention_plans import attend_with_gradients, near, normal, path, some_inputs
from reference_gradients import attention_gradients

from tf_transformer import AttentionPlan, scaled_dot_product_attention
from tf_transformer.functional.attention.by_distance import ByDistance

pytestmark = [pytest.mark.one_of(10, "forms"), pytest.mark.one_of(10)]  # files; cases of each test

every_size = pytest.mark.parametrize("plan", ["windowed 3", "windowed 64"])
every_path = pytest.mark.parametrize("name", ["eager", "graph", "xla", "core_xla"])


def band(t, s, window, causal=False):
    """1 for the pairs that a window blocks, from its definition, (T, S)."""
    distances = np.arange(s) - np.arange(t)[:, None]
    return ((distances < -window) | (distances > (0 if causal else window))) * 1.0


def compare(actual, inputs, blocked, bias=0.0):
    """Compare output and gradients with float64."""
    q, k, v, g = (x.numpy().astype(np.float64) for x in inputs)
    output, gradients = actual
    near(output, ref.scaled_dot_product_attention(q, k, v, blocked, bias)[0], "float32")
    exact = attention_gradients(q, k, v, g, blocked, bias)
    for name, gradient in zip(("q", "k", "v", "bias"), gradients, strict=False):
        near(gradient, exact[name].reshape(gradient.shape), "float32")


# The law


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 2, 5, 13, 997])
def test_the_reference_of_a_window_is_that_of_its_band(window, causal):
    q, k, v, _ = (x.numpy() for x in some_inputs())
    mask = np.random.default_rng(3).random((2, 1, 7, 11)) < 0.5
    bias = normal(2, 3, 7, 11).numpy()
    blocked = np.maximum(mask, band(7, 11, window, causal))
    one = ref.windowed_attention(q, k, v, window, causal, mask, bias)
    for x, y in zip(one, ref.scaled_dot_product_attention(q, k, v, blocked, bias), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-14)


@pytest.mark.one_of(10)
@every_size
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 2, 7, 13])
@pytest.mark.parametrize(("t", "s"), [(7, 11), (23, 23), (29, 5), (5, 2), (2, 17), (1, 1)])
def test_a_window_is_full_attention_with_a_band(plan, window, causal, t, s):
    inputs = some_inputs(t=t, s=s)
    run = path("eager", plan, causal=causal, window=window)
    compare(run(*inputs[:3], None, None, inputs[3]), inputs, band(t, s, window, causal))


@pytest.mark.slow
@pytest.mark.one_of(10)
@every_path
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("mask", "bias"),
    [
        ((5, 1, 1, 13), (1, 2, 19, 13)),
        ((19, 13), (5, 1, 19, 13)),
        ((5, 2, 19, 13), (19, 1)),
        ((5, 2, 19, 1), (5, 2, 1, 13)),
    ],
)
def test_masks_and_biases_of_every_shape(name, causal, mask, bias):
    """Five sentences in blocks of two, so that the last two blocks share one."""
    q, g = normal(5, 2, 19, 3, seed=0), normal(5, 2, 19, 3, seed=1)
    k, v = normal(5, 2, 13, 3, seed=2), normal(5, 2, 13, 3, seed=3)
    mask = (np.random.default_rng(4).random(mask) < 0.4).astype(np.float32)
    bias = normal(*bias, seed=5)
    plan = AttentionPlan("windowed", query_block=4, most_scores=2 * 2 * 4 * 8)
    run = functools.partial(attend_with_gradients, plan=plan, window=2, causal=causal)
    run = functools.partial(run, jit={"xla": "auto", "core_xla": True}.get(name, False))
    if name in ("graph", "xla"):
        run = tf.function(run, autograph=False, jit_compile=name == "xla")
    actual = run(q, k, v, tf.constant(mask), bias, g)
    full = np.broadcast_to(bias, (*(1,) * (4 - bias.shape.rank), *bias.shape))
    compare(actual, (q, k, v, g), np.maximum(mask, band(19, 13, 2, causal)), full)


def test_weights_wanted_with_a_mask_and_a_window():
    """The whole plan blocks what the mask or the window blocks."""
    q, k, v, _ = some_inputs()
    mask = (np.random.default_rng(3).random((2, 1, 7, 11)) < 0.4).astype(np.float32)
    blocked = np.maximum(mask, band(7, 11, 2))
    expected = ref.scaled_dot_product_attention(q, k, v, blocked)
    for one, other in zip(
        scaled_dot_product_attention(q, k, v, mask, window=2), expected, strict=True
    ):
        near(one, other, "float32")


def test_distances_that_do_not_start_at_zero():
    """Queries that stand after some keys, with tables wider than the window."""
    q, k, v, _ = some_inputs(t=23, s=23)
    table = normal(3, 15, seed=4)
    for offset in (-3, 2):
        bias = ByDistance(table, offset=offset)
        results = [
            scaled_dot_product_attention(
                q, k, v, bias=bias, window=2, plan=plan, return_attention_weights=False
            )[0]
            for plan in (AttentionPlan("windowed", query_block=3), "whole")
        ]
        distances = np.clip(offset + np.arange(23) - np.arange(23)[:, None], -7, 7)
        exact = ref.scaled_dot_product_attention(
            q, k, v, band(23, 23, 2), table.numpy()[:, distances + 7]
        )[0]
        for result in results:
            near(result, exact, "float32")


def test_a_bool_padding_mask():
    inputs = some_inputs(t=11)
    keep = np.arange(11) < np.array([[7], [10]])
    run = path("graph", "windowed 3", window=2)
    actual = run(*inputs[:3], tf.constant(keep), None, inputs[3])
    compare(actual, inputs, np.maximum(~keep[:, None, None], band(11, 11, 2)))


@pytest.mark.parametrize("lead", [(), (3,), (2, 1, 3)])
def test_leading_axes(lead):
    q, g = normal(*lead, 7, 4, seed=0), normal(*lead, 7, 4, seed=1)
    k, v = normal(*lead, 11, 4, seed=2), normal(*lead, 11, 4, seed=3)
    run = path("graph", "windowed 3", window=2)
    bias = normal(*lead, 7, 11, seed=4)
    compare(run(q, k, v, None, bias, g), (q, k, v, g), band(7, 11, 2), bias.numpy())


@pytest.mark.parametrize("causal", [False, True])
def test_the_weights_of_a_window_are_exactly_zero_outside(causal):
    q, k, v, _ = some_inputs()
    output, weights = scaled_dot_product_attention(q, k, v, window=2, causal=causal)
    expected, expected_weights = ref.windowed_attention(q, k, v, 2, causal)
    near(output, expected, "float32")
    near(weights, expected_weights, "float32")
    outside = np.broadcast_to(band(7, 11, 2, causal) == 1, weights.shape)
    assert not weights.numpy()[outside].any() and weights.numpy()[~outside].all()


# The contract


@every_size
@every_path
def test_a_query_far_from_all_keys_is_the_plain_average(name, plan):
    inputs = some_inputs(t=23, s=5)
    output, gradients = path(name, plan, window=3)(*inputs[:3], None, None, inputs[3])
    compare((output, gradients), inputs, band(23, 5, 3))
    mean = inputs[2].numpy().mean(axis=-2, keepdims=True)
    np.testing.assert_allclose(output[:, :, 8:], np.broadcast_to(mean, (2, 3, 15, 4)), atol=1e-6)
    assert not gradients[0].numpy()[:, :, 8:].any()


def test_the_average_of_a_query_far_from_all_keys_has_their_distances():
    """A window narrows the table; the average is over all keys, at their own distances."""
    q, k, v, _ = some_inputs(t=23, s=5)
    table = normal(15, 4, seed=4)
    output, _ = scaled_dot_product_attention(
        q,
        k,
        v,
        bias=ByDistance(values=table),
        window=2,
        plan=AttentionPlan("windowed", query_block=3),
        return_attention_weights=False,
    )
    distances = np.clip(np.arange(5) - np.arange(7, 23)[:, None], -7, 7)  # (16, S)
    of_distances = table.numpy().astype(np.float64)[distances + 7].mean(1)
    exact = v.numpy().astype(np.float64).mean(-2, keepdims=True) + of_distances
    near(output[:, :, 7:], exact, "float32")


@pytest.mark.one_of(10)
@every_size
@every_path
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_and_a_window_may_block_every_key_together(name, plan, causal):
    inputs = some_inputs(t=11)
    mask = np.zeros((2, 1, 1, 11), np.float32)
    mask[0, ..., 2:7] = 1
    run = path(name, plan, window=2, causal=causal)
    output, gradients = run(*inputs[:3], tf.constant(mask), None, inputs[3])
    compare((output, gradients), inputs, np.maximum(mask, band(11, 11, 2, causal)))
    near(output[0, :, 4], inputs[2][0].numpy().mean(axis=1), "float32")


@pytest.mark.one_of(10)
@every_size
@every_path
@pytest.mark.parametrize("causal", [False, True])
def test_a_key_changes_no_bit_outside_its_window(name, plan, causal):
    q, k, v, g = some_inputs(t=11)
    run = path(name, plan, window=2, causal=causal)
    output, (dq, *_) = run(q, k, v, None, None, g)
    for s in (0, 5, 10):
        at = np.arange(11)[:, None] == s
        other, (changed, *_) = run(q, tf.where(at, 173.0, k), tf.where(at, -3e4, v), None, None, g)
        far = band(11, 11, 2, causal)[:, s] == 1
        for one, same in ((other, output), (changed, dq)):
            np.testing.assert_array_equal(one.numpy()[:, :, far], same.numpy()[:, :, far])
        moved, _ = run(q, k, tf.where(at, -3e4, v), None, None, g)
        assert (moved != output).numpy()[:, :, ~far].any(axis=(0, 1, 3)).all()


@every_path
def test_dropout_within_a_window(name):
    """With v = I, the output is the weights after dropout."""
    t, s, window, causal = 41, 37, 15, True
    q, k, g = normal(2, 3, t, 4, seed=0), normal(2, 3, s, 4, seed=1), normal(2, 3, t, s, seed=2)
    v = tf.broadcast_to(tf.eye(s), (2, 3, s, s))
    run = path(name, "windowed 3", window=window, causal=causal, dropout=(0.3, (1, 2)))
    dropped, (dq, dk, dv) = run(q, k, v, None, None, g)
    _, weights = ref.windowed_attention(q, k, v, window, causal)
    inside = np.broadcast_to(band(t, s, window, causal) == 0, weights.shape)
    assert not dropped.numpy()[~inside].any()
    factors = np.where(inside, dropped / np.where(inside, weights, 1), 0)
    kept = factors > 0.5
    np.testing.assert_allclose(factors, kept / 0.7, atol=1e-4)
    assert abs(kept[inside].mean() - 0.7) < 0.03
    rows = list(_in_order_of_distance(kept[:, :, window + 1 : s], window))
    # 124 of 126 independent rows of 16 keys differ, give or take two.
    assert len({row.tobytes() for row in rows}) > 0.9 * len(rows), "rows repeat"
    dweights = g.numpy().astype(np.float64) * factors
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    near(dq, dscores @ k.numpy() / 2, "float32")
    near(dk, np.swapaxes(dscores, -1, -2) @ q.numpy() / 2, "float32")
    near(dv, np.swapaxes(dropped, -1, -2) @ g.numpy(), "float32")


def _in_order_of_distance(kept, window):
    """The factors of the keys in each query's window, from the first to the query itself."""
    for row in np.ndindex(kept.shape[:-1]):
        t = row[-1] + window + 1
        yield kept[row][t - window : t + 1]


# Graphs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "compiled"),
    [("auto", False), (AttentionPlan("windowed", 60, 3), False), ("auto", True)],
    ids=["auto", "tiles", "xla"],
)
def test_lengths_and_batch_may_be_unknown(plan, compiled):
    signature = [tf.TensorSpec([None, 3, None, 4])] * 3 + [tf.TensorSpec([None] * 4)] * 2
    signature += [tf.TensorSpec([None, 3, None, 4])]

    @tf.function(input_signature=signature, autograph=False, jit_compile=compiled)
    def run(*arguments):
        return attend_with_gradients(*arguments, plan=plan, window=2)

    for t, s in ((7, 11), (13, 2)) if compiled else ((7, 11), (13, 2), (1, 1)):
        inputs = some_inputs(t=t, s=s)
        for mask, bias in (((2, 1, 1, s), (1, 3, t, s)), ((2, 3, t, s), (2, 3, t, s))):
            mask = tf.cast(normal(*mask) > 0.5, tf.float32)
            actual = run(*inputs[:3], mask, normal(*bias), inputs[3])
            blocked = np.maximum(mask, band(t, s, 2))
            compare(actual, inputs, blocked, normal(*bias).numpy())


def test_a_saved_model(tmp_path):
    module, plan = tf.Module(), AttentionPlan("windowed", query_block=3)
    module.scores, module.keys = tf.Variable(normal(3, 9)), tf.Variable(normal(9, 4))

    @tf.function(input_signature=[tf.TensorSpec([None, 3, None, 4])] * 3, autograph=False)
    def call(q, k, v):
        bias = ByDistance(tf.convert_to_tensor(module.scores), tf.convert_to_tensor(module.keys))
        return scaled_dot_product_attention(
            q, k, v, bias=bias, window=2, plan=plan, return_attention_weights=False
        )[0]

    module.call = call
    q, k, v, _ = some_inputs()
    expected = module.call(q, k, v)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.call(q, k, v), expected)


def largest_tensor(length, **options):
    """The number of elements of the largest tensor in the graph of a forward and backward pass."""
    inputs = [tf.TensorSpec((1, 2, length, 4))] * 3
    run = tf.function(
        lambda q, k, v: attend_with_gradients(q, k, v, None, None, q, **options), autograph=False
    )
    function = run.get_concrete_function(*inputs)
    graphs = [function.graph, *(f.graph for f in function.graph._functions.values())]
    return max(
        tensor.shape.num_elements() or 0
        for graph in graphs
        for operation in graph.get_operations()
        for tensor in operation.outputs
        if tensor.shape.rank is not None
    )


def test_memory_is_linear_in_the_length():
    short, long = (largest_tensor(length, window=16) for length in (2048, 4096))
    assert long == 2 * short < 4096 * 4096 / 8
    assert largest_tensor(512, window=16, plan="whole") >= 2 * 512 * 512
