"""Terms of the distance between key and query, in every plan.

Axes: B batch, N heads, T target length, S source length, H head width, D distances.
"""

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from attention_plans import PLANS, SOME_PLANS, every_plan, near, normal, options_of, some_inputs

from tf_transformer import AttentionPlan, scaled_dot_product_attention
from tf_transformer.functional.attention.by_distance import ByDistance, collect, spread

B, N, T, S, H, MOST = 2, 3, 7, 11, 4, 3
D = 2 * MOST + 1
pytestmark = [pytest.mark.one_of(10, "forms"), pytest.mark.one_of(10)]  # files; cases of each test
# Shapes of the three tables.
TABLES = {
    "scores": ((N, D), None, None),
    "scores of a batch": ((B, 1, D), None, None),
    "scores of all heads": ((D,), None, None),
    "keys": (None, (D, H), None),
    "values": (None, None, (D, H)),
    "keys and values": (None, (D, H), (D, H)),
    "all": ((N, D), (D, H), (D, H)),
}


def columns(offset, queries, keys, most):
    """The column that each pair reads, (queries, keys), by the definition."""
    distances = offset + np.arange(keys) - np.arange(queries)[:, None]
    return np.clip(distances, -most, most) + most


def reference_spread(table, offset, queries, keys):
    at = columns(offset, queries, keys, table.shape[-1] // 2)
    table = np.broadcast_to(table, (*table.shape[:-2], queries, table.shape[-1]))
    return np.take_along_axis(table, np.broadcast_to(at, (*table.shape[:-1], keys)), -1)


@pytest.mark.parametrize("offset", [0, 3, -5, 40, -40])
@pytest.mark.parametrize(
    ("queries", "keys", "most"), [(7, 11, 3), (5, 2, 9), (1, 1, 1), (3, 13, 1)]
)
def test_spread_and_collect_are_their_definitions(offset, queries, keys, most):
    table, x = normal(2, queries, 2 * most + 1), normal(2, queries, keys)
    for rows in (table, table[:, :1]):
        actual = spread(rows, offset, queries, keys)
        np.testing.assert_array_equal(actual, reference_spread(rows.numpy(), offset, queries, keys))
    one_hot = np.eye(2 * most + 1)[columns(offset, queries, keys, most)]  # (T, S, D)
    expected = np.einsum("bts,tsd->btd", x, one_hot)
    np.testing.assert_allclose(collect(x, offset, most), expected, atol=1e-5)
    together = expected.sum(1, keepdims=True)
    np.testing.assert_allclose(collect(x, offset, most, True), together, atol=1e-5)


def attend(q, k, v, cotangent, scores, keys, values, offset, **options):
    """Output and gradients with respect to q, k, v and the tables."""
    inputs = [x for x in (q, k, v, scores, keys, values) if x is not None]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        bias = ByDistance(scores, keys, values, offset)
        output, _ = scaled_dot_product_attention(
            q, k, v, bias=bias, return_attention_weights=False, **options
        )
        total = tf.reduce_sum(output * cotangent)
    return output, tape.gradient(total, inputs)


def reference(q, k, v, cotangent, scores, keys, values, offset, mask=None, causal=False):
    """The same from the equations in float64, with all terms as T x S tensors."""
    q, k, v, cotangent = (np.asarray(x, np.float64) for x in (q, k, v, cotangent))
    t, s = q.shape[2], k.shape[2]
    at, scale, bias = columns(offset, t, s, MOST), 1 / np.sqrt(q.shape[-1]), 0.0
    one_hot = np.eye(D)[at]  # (T, S, D)
    if scores is not None:
        scores = np.asarray(scores, np.float64)
        bias = np.einsum("...d,tsd->...ts", scores, one_hot)
    if keys is not None:
        keys = np.asarray(keys, np.float64)
        bias = bias + np.einsum("bnth,tsh->bnts", q, keys[at]) * scale
    blocked = np.zeros((1, 1, t, s)) if mask is None else np.broadcast_to(mask, (B, N, t, s)).copy()
    if causal:
        blocked = np.maximum(blocked, np.arange(s) > np.arange(t)[:, None])
    output, w = ref.scaled_dot_product_attention(q, k, v, blocked, bias)
    dw = cotangent @ np.swapaxes(v, -1, -2)
    if values is not None:
        by_pair = np.asarray(values, np.float64)[at]  # (T, S, H)
        output = output + np.einsum("bnts,tsh->bnth", w, by_pair)
        dw = dw + np.einsum("bnth,tsh->bnts", cotangent, by_pair)
    dscores = w * (dw - (w * dw).sum(-1, keepdims=True)) * (blocked == 0)
    dq = dscores @ k * scale
    if keys is not None:
        dq = dq + np.einsum("bnts,tsh->bnth", dscores, keys[at]) * scale
    gradients = [
        dq,
        np.swapaxes(dscores, -1, -2) @ q * scale,
        np.swapaxes(w, -1, -2) @ cotangent,
    ]
    if scores is not None:
        dtable = np.einsum("bnts,tsd->bnd", dscores, one_hot)
        for axis, size in enumerate((1,) * (3 - scores.ndim) + scores.shape):
            dtable = dtable.sum(axis, keepdims=True) if size == 1 else dtable
        gradients.append(dtable.reshape(scores.shape))
    if keys is not None:
        gradients.append(np.einsum("bnts,tsd,bnth->dh", dscores, one_hot, q) * scale)
    if values is not None:
        gradients.append(np.einsum("bnts,tsd,bnth->dh", w, one_hot, cotangent))
    return output, gradients


def inputs(kind):
    q, k, v, cotangent = some_inputs()
    tables = (
        None if shape is None else normal(*shape, seed=seed)
        for seed, shape in enumerate(TABLES[kind], start=4)
    )
    return q, k, v, cotangent, *tables


def run(name, plan, offset, **options):
    jit = {"xla": "auto", "core_xla": True}.get(name, False)

    def function(*given):
        return attend(*given, offset, jit=jit, **{**options_of(plan), **options})

    if name in ("eager", "core_xla"):
        return function
    return tf.function(function, autograph=False, jit_compile=name == "xla")


def compare(actual, expected):
    (output, gradients), (true_output, true_gradients) = actual, expected
    near(output, true_output, "float32")
    for one, other in zip(gradients, true_gradients, strict=True):
        near(one, other, "float32")


@pytest.mark.parametrize(
    ("kind", "offset"),
    [
        ("scores of a batch", 0),
        ("scores of all heads", -2),
        ("keys", 3),
        ("values", 0),
        ("all", 3),
    ],
)
@every_plan
def test_every_table_is_near_float64(plan, kind, offset):
    given = inputs(kind)
    compare(run("graph", plan, offset)(*given), reference(*given, offset))


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan not in SOME_PLANS])
def test_every_plan_is_near_float64(plan):
    given = inputs("all")
    compare(run("graph", plan, -2)(*given), reference(*given, -2))


def test_a_head_of_two_blocks_counts_once():
    *given, scores, keys, values = inputs("all")
    given = *(x[:1] for x in given), scores, keys, values
    plan = AttentionPlan("rowwise", most_scores=2 * T * S)  # blocks of 2 of the 3 heads
    actual = attend(*given, 0, plan=plan, jit=False)
    compare(actual, reference(*given, 0))


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", ["eager", "xla", "core_xla"])
@pytest.mark.parametrize("kind", ["scores", "keys and values"])
@every_plan
def test_every_path_is_near_float64(name, plan, kind):
    given = inputs(kind)
    compare(run(name, plan, 1)(*given), reference(*given, 1))


@pytest.mark.parametrize("causal", [False, True])
@every_plan
def test_masks_and_rows_without_a_free_key(plan, causal):
    given = inputs("all")
    mask = (np.random.default_rng(6).random((B, 1, T, S)) < 0.4).astype(np.float32)
    mask[1, :, 4] = 1
    actual = run("graph", plan, 0, mask=tf.constant(mask), causal=causal)(*given)
    compare(actual, reference(*given, 0, mask, causal))


@pytest.mark.one_of(10)
@pytest.mark.parametrize("plan", ["whole", "windowed 3", "windowed 64"])
@pytest.mark.parametrize("offset", [0, -2])
@pytest.mark.parametrize("window", [1, 2, 5])  # the tables have distances up to 3
def test_a_window(plan, offset, window):
    given = inputs("all")
    mask = (np.random.default_rng(6).random((B, 1, T, S)) < 0.4).astype(np.float32)
    mask[1, :, 4] = 1
    actual = run("graph", plan, offset, mask=tf.constant(mask), window=window)(*given)
    distant = np.abs(np.arange(S) - np.arange(T)[:, None]) > window
    compare(actual, reference(*given, offset, np.maximum(mask, distant)))


@every_plan
def test_dropout_drops_the_terms_of_the_values_too(plan):
    q, k, v, cotangent, scores, _, values = inputs("all")
    none, seed = None, tf.constant([3, 5])
    attention = run("graph", plan, 0, dropout=(0.4, seed))
    # An output of ones, if no weight were dropped.
    ones, zeros = tf.ones_like, tf.zeros_like
    output, _ = attention(q, k, zeros(v), cotangent, scores, none, ones(values))
    other, _ = attention(q, k, ones(v), cotangent, scores, none, zeros(values))
    np.testing.assert_allclose(output, other, atol=1e-5)
    assert np.std(output) > 0.05


@every_plan
def test_constant_scores_have_no_gradient(plan):
    q, k, v, _, scores, *_ = inputs("scores")
    with tf.GradientTape() as tape:
        tape.watch((q, scores))
        bias = ByDistance(scores, has_gradient=False)
        output, _ = scaled_dot_product_attention(
            q, k, v, bias=bias, return_attention_weights=False, **options_of(plan)
        )
    near(output, reference(q, k, v, output, scores, None, None, 0)[0], "float32")
    dq, dscores = tape.gradient(output, (q, scores))
    assert np.any(dq) and dscores is None


@pytest.mark.slow
def test_unknown_lengths():
    given = inputs("all")
    loose = [
        tf.TensorSpec((None, N, None, x.shape[-1]) if x.shape.rank == 4 else x.shape) for x in given
    ]
    for plan in SOME_PLANS:
        function = tf.function(
            lambda *x, plan=plan: attend(*x, 0, **options_of(plan)),
            input_signature=loose,
            autograph=False,
        )
        compare(function(*given), reference(*given, 0))


def test_no_plan_in_blocks_spreads_the_terms():
    """No tensor of the graph has T x S elements or more."""
    length = 512
    q, scores, table = tf.zeros((1, 2, length, H)), tf.zeros((2, D)), tf.zeros((D, H))
    for plan, window in (
        (AttentionPlan("rowwise", 2**12), None),
        (AttentionPlan("blockwise", 64, 64), None),
        (AttentionPlan("windowed", 2**12, 32), 32),
    ):
        options = {"plan": plan, "window": window}
        function = tf.function(
            lambda *x, options=options: attend(*x, 0, **options), autograph=False
        ).get_concrete_function(q, q, q, q, scores, table, table)
        graphs = [function.graph, *(f.graph for f in function.graph._functions.values())]
        sizes = [
            tensor.shape.num_elements() or 0
            for graph in graphs
            for operation in graph.get_operations()
            for tensor in operation.outputs
            if tensor.shape.rank is not None
        ]
        assert max(sizes) < length * length


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "scores, keys, values: expected at least one table, got none"),
        ({"scores": (N, 4)}, "scores: expected an odd number of distances of at least 3.* got 4"),
        ({"keys": (1, H)}, "keys: expected an odd number of distances of at least 3"),
        ({"scores": (N, 5), "values": (3, H)}, r"scores, values: .* same number.* got \[5, 3\]"),
    ],
)
def test_wrong_tables(tables, message):
    with pytest.raises(ValueError, match=message):
        ByDistance(**{name: tf.zeros(shape) for name, shape in tables.items()})


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"scores": (N + 1, 5)}, r"bias: expected ByDistance with scores .* got \(4, 5\)"),
        ({"scores": (1, B, N, 5)}, r"got \(1, 2, 3, 5\)"),
        ({"keys": (5, H + 1)}, "bias: expected ByDistance with keys of width 4, the width of k"),
        (
            {"values": (5, H + 1)},
            "bias: expected ByDistance with values of width 4, the width of v",
        ),
    ],
)
def test_tables_that_do_not_fit(tables, message):
    q, k, v, _ = some_inputs()
    bias = ByDistance(**{name: tf.zeros(shape) for name, shape in tables.items()})
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(q, k, v, bias=bias)
