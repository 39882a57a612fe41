"""Every score meets the contract of attention: accuracy, gradients, masks, bitwise invariances.

Axes: B batch, T target length, S source length, D and E widths of queries and keys, U units, V
width of values.
"""

import functools

import numpy as np
import pytest
import reference_scores as ref
import tensorflow as tf
from attention_plans import TOLERANCE, every_dtype, near

from tf_transformer import (
    AttentionPlan,
    additive_attention,
    bilinear_attention,
    multiplicative_attention,
)
from tf_transformer.functional.attention import scored

pytestmark = [pytest.mark.one_of(10, "forms"), pytest.mark.one_of(10)]  # files; cases of each test

B, T, S, D, E, U, V = 3, 5, 7, 4, 6, 11, 2
FUNCTIONS = {
    "additive": additive_attention,
    "multiplicative": multiplicative_attention,
    "bilinear": bilinear_attention,
}
# Elements of a block: all; 2 queries; 2 heads. The last block of 2 overlaps the one before.
BLOCKS = {"one block": 2**19, "queries": 2 * S * U, "heads": 2 * T * S * U}
PLANS = {
    "whole": "whole",
    "rowwise": AttentionPlan("rowwise", most_scores=16),
    "blockwise": AttentionPlan("blockwise", query_block=2, key_block=3),
}
# The plans have tests of their own, so each of the other scores takes some of them.
VARIANTS = [
    *(("additive", blocks) for blocks in BLOCKS),
    ("multiplicative", "whole"),
    ("multiplicative", "rowwise"),
    ("bilinear", "whole"),
    ("bilinear", "blockwise"),
]
IDS = ["-".join(variant) for variant in VARIANTS]
# XLA takes seconds to compile loops.
COMPILED = [("additive", "heads"), ("multiplicative", "whole"), ("bilinear", "whole")]
RUNS = [(*variant, way) for variant in VARIANTS for way in ("eager", "graph", "unknown sizes")]
RUNS += [(*variant, "xla") for variant in COMPILED]
every_name = pytest.mark.parametrize("name", FUNCTIONS)
every_variant = pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=IDS)


@pytest.fixture
def use(monkeypatch):
    """Return the options of a variant; the blocks of additive attention are module constants."""

    def options(name, variant):
        if name != "additive":
            return {"plan": PLANS[variant]}
        monkeypatch.setattr(scored, "_MOST_ELEMENTS", BLOCKS[variant])
        return {}

    return options


def draw(name, dtype="float32"):
    """Return q, k, v and the parameters, all of order 1."""
    rng = np.random.default_rng(5)
    width = D if name == "multiplicative" else E
    shapes = [(B, T, D), (B, S, width), (B, S, V)]
    shapes += {"additive": [(D, U), (E, U), (U,)], "bilinear": [(D, E)]}.get(name, [])
    arrays = [rng.standard_normal(shape) for shape in shapes]
    arrays[3:] = [0.5 * array for array in arrays[3:]]
    return [tf.cast(array, dtype) for array in arrays]


def ups(dtype="float32"):
    """Return the gradients of a loss with respect to output and weights."""
    rng = np.random.default_rng(6)
    return [tf.cast(rng.standard_normal(shape), dtype) for shape in ((B, T, V), (B, T, S))]


def some_mask():
    """Zeros and ones; a row with every key blocked, and a sentence whose first keys are blocked."""
    mask = (np.random.default_rng(7).random((B, T, S)) < 0.4).astype(np.float32)
    mask[0, 1] = 1
    mask[1, :, :5], mask[1, :, 5:] = 1, 0
    return mask


def with_gradients(name, weights_wanted, *arguments, **options):
    """Return output, weights if wanted, and the gradients of all inputs."""
    *inputs, mask, up, up_weights = arguments
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        results = FUNCTIONS[name](*inputs, mask, return_attention_weights=weights_wanted, **options)
        results = [x for x in results if x is not None]
        pairs = zip(results, (up, up_weights), strict=False)
        total = sum(tf.reduce_sum(tf.cast(x * y, tf.float64)) for x, y in pairs)
    return results, tape.gradient(total, inputs)


def run(way, name, weights_wanted, arguments, **options):
    function = functools.partial(with_gradients, name, weights_wanted, **options)
    if way == "eager":
        return function(*arguments)
    signature = None
    if way == "unknown sizes":
        signature = [
            tf.TensorSpec((None, None, x.shape[-1]) if i < 3 else x.shape, x.dtype)
            for i, x in enumerate(arguments[:-3])
        ]
        signature += [tf.TensorSpec([None] * 3, x.dtype) for x in arguments[-3:-1]]
        signature[-1] = tf.TensorSpec((None, None, V), arguments[-2].dtype)
        signature += [tf.TensorSpec([None] * 3, arguments[-1].dtype)]
    wrapped = tf.function(
        function, autograph=False, jit_compile=way == "xla", input_signature=signature
    )
    return wrapped(*arguments)


@functools.cache
def expected(name, dtype, weights_wanted):
    """Return outputs and numeric gradients of the reference, for inputs rounded to `dtype`."""
    exact = [tf.cast(x, tf.float64).numpy() for x in draw(name, dtype)]
    pulls = [tf.cast(x, tf.float64).numpy() for x in ups(dtype)][: 1 + weights_wanted]
    results = ref.attention(name, exact, some_mask())[: 1 + weights_wanted]
    return results, ref.numeric_gradients(name, exact, pulls, some_mask())


@pytest.mark.slow
@pytest.mark.one_of(10)
@every_dtype
@pytest.mark.parametrize(("name", "variant", "way"), RUNS, ids=["-".join(run) for run in RUNS])
def test_results_and_gradients_are_those_of_float64(name, variant, way, dtype, use):
    options = use(name, variant)
    arguments = [*draw(name, dtype), tf.constant(some_mask()), *ups(dtype)]
    returns_weights = variant not in ("rowwise", "blockwise")
    for weights_wanted in (False, True)[: 1 + returns_weights]:
        results, gradients = run(way, name, weights_wanted, arguments, **options)
        exact, exact_gradients = expected(name, dtype, weights_wanted)
        assert len(results) == 1 + weights_wanted
        for one, other in zip([*results, *gradients], [*exact, *exact_gradients], strict=True):
            assert one.dtype == dtype
            near(one, other, dtype)


@every_variant
def test_float64_stays_float64(name, variant, use):
    options = use(name, variant)
    arguments = [*draw(name, "float64"), tf.constant(some_mask()), *ups("float64")]
    results, gradients = run("graph", name, False, arguments, **options)
    exact, exact_gradients = expected(name, "float64", False)
    for one, other in zip(results, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)
    for one, other in zip(gradients, exact_gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("way", ["graph", "unknown sizes"])
@every_variant
def test_what_is_blocked_changes_no_bit(name, variant, way, use):
    options, (q, k, v, *parameters) = use(name, variant), draw(name)
    blocked = np.zeros((B, T, S), np.float32)
    blocked[0, :, 2] = blocked[1, :, 4:] = 1
    column = blocked[:, 0, :, None] == 1  # (B, S, 1)
    mask = tf.constant(blocked)
    (output,), gradients = run(way, name, False, [q, k, v, *parameters, mask, *ups()], **options)
    others = tf.where(column, 9.0, k), tf.where(column, -3e4, v)
    (other,), changed = run(way, name, False, [q, *others, *parameters, mask, *ups()], **options)
    np.testing.assert_array_equal(other, output)
    np.testing.assert_array_equal(changed[0], gradients[0])
    for one, more in zip(gradients[3:], changed[3:], strict=True):
        np.testing.assert_array_equal(one, more)
    for gradient in changed[1:3]:
        assert not gradient.numpy()[np.broadcast_to(column, gradient.shape)].any()
        assert gradient.numpy().any()


@every_name
@pytest.mark.parametrize("kind", ["float", "bool", "keras"])
def test_weights_are_zero_where_blocked_and_rows_sum_to_one(name, kind):
    blocked = np.arange(S) >= np.array([7, 4, 1])[:, None]  # (B, S)
    mask = {
        "float": blocked[:, None].astype(np.float32),
        "bool": ~blocked[:, None],
        "keras": ~blocked,  # (B, S)
    }[kind]
    _, weights = FUNCTIONS[name](*draw(name), mask)
    assert not weights.numpy()[np.broadcast_to(blocked[:, None], weights.shape)].any()
    assert weights.numpy()[~np.broadcast_to(blocked[:, None], weights.shape)].all()
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-6)


@every_variant
def test_a_row_with_every_key_blocked_is_the_plain_average(name, variant, use):
    options, inputs = use(name, variant), draw(name)
    arguments = [*inputs, tf.constant(some_mask()), *ups()]
    (output,), (dq, *_) = run("graph", name, False, arguments, **options)
    near(output[0, 1], inputs[2][0].numpy().mean(axis=0), "float32")
    assert not dq[0, 1].numpy().any(), "an average does not depend on the query"


@pytest.mark.one_of(10)
@every_variant
def test_causal_is_the_look_ahead_mask(name, variant, use):
    options = use(name, variant)
    future = np.triu(np.ones((T, S)), 1)
    arguments = [*draw(name), some_mask(), *ups()]
    results, gradients = run("graph", name, False, arguments, causal=True, **options)
    arguments[-3] = np.maximum(some_mask(), future).astype(np.float32)
    masked, others = run("graph", name, False, arguments, **options)
    for one, other in zip([*results, *gradients], [*masked, *others], strict=True):
        near(one, other.numpy(), "float32")
    unmasked, _ = run("graph", name, False, [*draw(name), some_mask(), *ups()], **options)
    assert np.abs(unmasked[0] - masked[0]).max() > 0.1


@every_variant
def test_heads_share_the_parameters_and_a_mask_may_broadcast(name, variant, use):
    options, (q, k, v, *parameters) = use(name, variant), draw(name)
    blocked = some_mask()[:1, :1]  # (1, 1, S)
    heads = [tf.stack([x, x[::-1]], axis=1) for x in (q, k, v)]  # (B, 2, T, D)
    options["return_attention_weights"] = False
    together, none = FUNCTIONS[name](*heads, *parameters, blocked[None], **options)
    assert none is None
    one, _ = FUNCTIONS[name](q, k, v, *parameters, blocked, **options)
    near(together, np.stack([one, one[::-1]], axis=1), "float32")
    row, _ = FUNCTIONS[name](q[0], k[0], v[0], *parameters, blocked[0], **options)
    near(row, one[0].numpy(), "float32")


@every_name
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("batch", "target"), [(0, T), (B, 0)])
def test_an_empty_batch_or_no_queries(name, jit, batch, target):
    q, k, v, *parameters = draw(name)
    function = tf.function(FUNCTIONS[name], autograph=False, jit_compile=jit)
    output, weights = function(q[:batch, :target], k[:batch], v[:batch], *parameters)
    assert output.shape == (batch, target, V)
    assert weights.shape == (batch, target, S)


def test_without_keys_an_additive_output_is_zero():
    q, k, v, *parameters = draw("additive")
    output, weights = additive_attention(q, k[:, :0], v[:, :0], *parameters)
    np.testing.assert_array_equal(output, tf.zeros((B, T, V)))
    assert weights.shape == (B, T, 0)


# Additive attention


def test_a_saved_model_keeps_the_gradient(tmp_path):
    inputs = draw("additive")
    module = tf.Module()
    spec = [tf.TensorSpec((None, None, x.shape[-1])) for x in inputs[:3]]
    spec += [tf.TensorSpec(x.shape) for x in inputs[3:]]
    module.attend = tf.function(additive_attention, input_signature=spec, autograph=False)
    tf.saved_model.save(module, tmp_path)
    results = []
    for function in (additive_attention, tf.saved_model.load(tmp_path).attend):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output, _ = function(*inputs)
            total = tf.reduce_sum(output**2)
        results.append([output, *tape.gradient(total, inputs)])
    for one, other in zip(*results, strict=True):
        near(one, other.numpy(), "float32")


def every_size(graph):
    """Return the sizes of all tensors of a graph and of the loops in it, by name."""
    found = {}
    graphs = [graph]
    while graphs:
        graph = graphs.pop()
        for operation in graph.get_operations():
            for tensor in operation.outputs:
                if tensor.shape.is_fully_defined():
                    found[f"{graph.name}: {tensor.name}"] = tensor.shape.num_elements()
            for key in ("body", "cond", "f"):
                if key in operation.node_def.attr:
                    name = operation.get_attr(key).name
                    graphs.append(graph._get_function(name).graph)
    return found


@pytest.mark.parametrize("weights_wanted", [False, True])
def test_no_tensor_of_a_graph_holds_the_hidden_layer(weights_wanted, monkeypatch):
    monkeypatch.setattr(scored, "_MOST_ELEMENTS", 1024)
    t, s = 131, 149
    shapes = [(1, t, D), (1, s, E), (1, s, V), (D, U), (E, U), (U,), (1, 1, s)]
    function = tf.function(
        functools.partial(with_gradients, "additive", weights_wanted), autograph=False
    )
    shapes += [(1, t, V), (1, t, s) if weights_wanted else (1, 1, 1)]
    found = every_size(function.get_concrete_function(*map(tf.TensorSpec, shapes)).graph)
    assert any("while" in name for name in found), "the bodies of the loops were not looked into"
    assert max(found.values()) < (2 * t * s if weights_wanted else t * s)


# Multiplicative and bilinear attention


def test_a_query_that_its_scale_would_push_out_of_float16():
    q, k, v = (tf.cast(x, tf.float16) for x in (np.full((1, 7), 3e4), np.eye(7) * 1e-4, np.eye(7)))
    output, _ = multiplicative_attention(q, k, v)
    near(output, np.full((1, 7), 1 / 7), "float16")
    output, _ = bilinear_attention(q, k, v, 100.0 * np.eye(7, dtype=np.float32))
    assert np.isfinite(output).all()


@pytest.mark.parametrize("jit", [False, True])
def test_scores_of_bfloat16_are_not_rounded(jit):
    rng = np.random.default_rng(8)
    q, k = (tf.cast(rng.standard_normal((1, n, 61)), tf.bfloat16) for n in (19, 23))
    v = tf.cast(rng.standard_normal((1, 23, 5)), tf.bfloat16)
    function = tf.function(multiplicative_attention, autograph=False, jit_compile=jit)
    _, weights = function(q, k, v)
    scores = ref.multiplicative_scores(*(tf.cast(x, tf.float64) for x in (q, k)))
    _, exact = ref.attend(scores, tf.cast(v, tf.float64))
    # Under XLA the core rounds exp(score - maximum) too, for the product with the values.
    np.testing.assert_allclose(tf.cast(weights, tf.float64), exact, rtol=2**-7, atol=1e-6)


# Bad input


@every_name
def test_an_integer_mask(name):
    with pytest.raises(ValueError, match="mask: expected float.*got int32"):
        FUNCTIONS[name](*draw(name), tf.ones((B, T, S), tf.int32))


@every_name
@pytest.mark.parametrize(
    ("which", "shape", "message"),
    [
        (0, (T, D), "q, k, v: expected three tensors of the same rank"),
        (2, (B, S - 1, V), "k, v: expected one value for each key"),
        (0, (B + 1, T, D), "q, k: expected the same batch"),
    ],
)
def test_inputs_that_do_not_match(name, which, shape, message):
    inputs = draw(name)
    inputs[which] = tf.ones(shape)
    with pytest.raises(ValueError, match=message):
        FUNCTIONS[name](*inputs)


@every_name
@pytest.mark.parametrize("which", [0, 1, 2])
def test_integers(name, which):
    inputs = draw(name)
    inputs[which] = tf.cast(inputs[which], tf.int32)
    with pytest.raises(ValueError, match="q, k, v: expected float tensors.*int32"):
        FUNCTIONS[name](*inputs)


def test_widths_that_do_not_match():
    q, k, v, first, second, vector = draw("additive")
    with pytest.raises(ValueError, match=r"q, k: expected the same width.*4\).*6\)"):
        multiplicative_attention(q, k, v)
    with pytest.raises(ValueError, match=r"kernel: expected shape \(4, 6\).*got \(4, 11\)"):
        bilinear_attention(q, k, v, first)
    with pytest.raises(ValueError, match=r"kernel: expected shape \(4, any\).*got \(6, 6\)"):
        bilinear_attention(q, k, v, tf.ones((6, 6)))
    with pytest.raises(ValueError, match=r"query_kernel: expected shape \(4, any\).*\(6, 11\)"):
        additive_attention(q, k, v, second, second, vector)
    with pytest.raises(ValueError, match=r"key_kernel: expected shape \(6, any\).*\(4, 11\)"):
        additive_attention(q, k, v, first, first, vector)
    with pytest.raises(ValueError, match=r"expected shapes \(any, U\).*11 and 11, and \(10,\)"):
        additive_attention(q, k, v, first, second, vector[:10])


def test_the_tolerances_are_those_of_the_core():
    assert TOLERANCE == {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}
