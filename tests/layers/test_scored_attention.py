"""The layers with other scores: Keras's as peers, calls by position, mixed precision, errors.

Axes: B batch, T target length, S source length, D width, U units.
"""

import keras
import numpy as np
import pytest
import reference_scores as ref
import tensorflow as tf
from attention_plans import near

from tf_transformer import AdditiveAttention, BilinearAttention, MultiplicativeAttention

pytestmark = pytest.mark.one_of(10)  # of the cases of each test

B, T, S, D, U = 2, 3, 5, 7, 11
MAKE = {
    "additive": lambda **kwargs: AdditiveAttention(U, **kwargs),
    "multiplicative": MultiplicativeAttention,
    "bilinear": BilinearAttention,
}
every_layer = pytest.mark.parametrize("name", MAKE)
KEEP = np.array([[True, True, False, True, False], [True, True, True, True, True]])


def draw(*lengths, width=D):
    rng = np.random.default_rng(lengths)
    return [tf.constant(rng.standard_normal((B, n, width)), tf.float32) for n in lengths]


def with_gradients(call, *inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output, weights = call(*inputs)
        total = tf.reduce_sum(output**2) + tf.reduce_sum(weights**2)
    return [output, weights, *tape.gradient(total, inputs)]


def like_keras(name):
    """Return a layer, what it does to queries that Keras's does not do, and Keras's layer."""
    layer = AdditiveAttention(D) if name == "additive" else MAKE[name]()
    q, k, v = draw(T, S, S)
    layer(q, k, v)
    if name != "additive":
        project = (lambda q: q @ layer.kernel) if name == "bilinear" else tf.identity
        return layer, project, keras.layers.Attention(score_mode="dot")
    theirs = keras.layers.AdditiveAttention()  # has no projections
    theirs.build([q.shape, v.shape, k.shape])
    scale = np.linspace(-2, 2, D)
    theirs.set_weights([scale])
    layer.set_weights([np.eye(D), np.eye(D), scale])
    return layer, tf.identity, theirs


@every_layer
@pytest.mark.parametrize("causal", [False, True])
def test_keras_layers_agree(name, causal):
    if name == "additive" and keras.__version__.startswith("3.10."):
        pytest.skip("Keras 3.10 has no masks of keys for additive attention")
    layer, project, theirs = like_keras(name)
    mask, inputs = tf.constant(KEEP), draw(T, S, S)
    actual = with_gradients(lambda *x: layer(*x, mask, causal=causal), *inputs)
    expected = with_gradients(
        lambda q, k, v: theirs(
            [project(q), v, k],
            mask=[None, mask],
            return_attention_scores=True,
            use_causal_mask=causal,
        ),
        *inputs,
    )
    for one, other in zip(actual, expected, strict=True):
        near(one, other.numpy(), "float32")


@every_layer
def test_all_by_position(name):
    q, k, v = draw(T, S, S)
    layer, blocked = MAKE[name](), (~KEEP[:, None]).astype(np.float32)
    output, weights = layer(q, k, v, blocked, True, True)
    named = layer(q=q, k=k, v=v, mask=blocked, return_attention_weights=True, causal=True)
    np.testing.assert_array_equal(output, named[0])
    assert not weights.numpy()[np.broadcast_to(blocked, weights.shape) == 1].any()
    assert not np.triu(weights, 1).any()
    alone, none = layer(q, k, v, blocked, False, True)
    near(alone, output.numpy(), "float32")
    assert none is None


@every_layer
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_computes_scores_from_unrounded_weights(name, policy):
    q, k, v = (tf.cast(x, policy.removeprefix("mixed_")) for x in draw(T, S, S))
    layer = MAKE[name](dtype=policy)
    layer(q, k, v)
    rng = np.random.default_rng(9)
    layer.set_weights([rng.standard_normal(weight.shape) for weight in layer.get_weights()])
    output, _ = layer(q, k, v)
    inputs = [tf.cast(x, tf.float64).numpy() for x in (q, k, v)] + layer.get_weights()
    exact, _ = ref.attention(name, inputs)
    step = {"mixed_float16": 2**-11, "mixed_bfloat16": 2**-8}[policy]
    np.testing.assert_allclose(tf.cast(output, tf.float64), exact, rtol=step, atol=1e-6)
    assert output.dtype == q.dtype


@pytest.mark.parametrize("units", [0, -1, 2.5, "many", None])
def test_units(units):
    with pytest.raises(ValueError, match=f"units: expected a positive integer, got {units!r}"):
        AdditiveAttention(units)


@every_layer
def test_an_integer_mask(name):
    with pytest.raises(ValueError, match="mask: expected float.*got int32"):
        MAKE[name]()(*draw(T, S, S), tf.ones((B, T, S), tf.int32))


@every_layer
def test_ranks_that_differ(name):
    q, k, v = draw(T, S, S)
    with pytest.raises(ValueError, match="q, k, v: expected three tensors of the same rank"):
        MAKE[name]()(q[0], k, v)


def test_widths_that_differ():
    (q,), (k, v) = draw(T), draw(S, S, width=6)
    with pytest.raises(ValueError, match=r"q, k: expected the same width.*3, 7\).*5, 6\)"):
        MultiplicativeAttention()(q, k, v)
    assert BilinearAttention()(q, k, v)[0].shape == (B, T, 6)
    assert AdditiveAttention(U)(q, k, v)[0].shape == (B, T, 6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdditiveAttention(U), r"key_kernel: expected shape \(6, any\).*\(7, 11\)"),
        (BilinearAttention, r"kernel: expected shape \(7, 6\).*\(7, 7\)"),
    ],
)
def test_a_width_other_than_the_one_built_for(make, message):
    layer = make()
    layer(*draw(T, S, S))
    with pytest.raises(ValueError, match=message):
        layer(*draw(T), *draw(S, S, width=6))
