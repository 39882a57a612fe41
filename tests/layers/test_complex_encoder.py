"""The complex encoder and its parts: references, gradients, laws of masks, learning word order.

Axes: B=2 batch, T=5 target length, S=3 source length, D=14 width, N=7 heads, F=11 feed-forward,
V=13 vocabulary.
"""

import keras
import numpy as np
import pytest
import reference_complex as ref
import reference_numpy
import tensorflow as tf

from tf_transformer import (
    ComplexDense,
    ComplexDropout,
    ComplexEmbedding,
    ComplexEncoder,
    ComplexEncoderLayer,
    ComplexFeedForward,
    ComplexLayerNorm,
    ComplexMultiHeadAttention,
    ComplexToReal,
    attention_plan,
    create_padding_mask,
)
from tf_transformer.functional.attention.plan import AttentionPlan

pytestmark = pytest.mark.one_of(10)  # of the cases of each test

N, D, F, V = 7, 14, 11, 13
IDS = np.array([[5, 0, 6, 7, 5], [7, 8, 12, 0, 0]], np.int32)
BLOCKED = (np.random.default_rng(7).random((2, 1, 5, 5)) < 0.4).astype(np.float32)
BLOCKED[1, 0, 2] = 1  # a row with every key blocked


def normal(*shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def built(layer, *shapes):
    """The layer with weights far from their initial values."""
    layer.build(*shapes)
    rng = np.random.default_rng(3)
    layer.set_weights([0.4 * rng.standard_normal(w.shape) for w in layer.get_weights()])
    return layer


def params(layer):
    """The tree of a layer's parameters; see reference_complex.py."""
    if isinstance(layer, ComplexDense):
        return {
            "kernel": layer.kernel_real.numpy() + 1j * layer.kernel_imag.numpy(),
            "bias": layer.bias_real.numpy() + 1j * layer.bias_imag.numpy(),
        }
    if isinstance(layer, ComplexLayerNorm):
        return {"gamma": layer.gamma.numpy(), "beta": layer.beta.numpy()}
    if isinstance(layer, ComplexEmbedding):
        tables = {name: getattr(layer, name) for name in ("amplitude", "frequency", "phase")}
        return {name: 0.0 if t is None else t.numpy() for name, t in tables.items()}
    if isinstance(layer, ComplexEncoder):
        layers = [params(one) for one in layer.enc_layers]
        return {"embedding": params(layer.embedding), "layers": layers}
    parts = {
        ComplexFeedForward: ("hidden", "dense"),
        ComplexMultiHeadAttention: ("wq", "wk", "wv", "dense"),
        ComplexEncoderLayer: ("mha", "ffn", "layernorm1", "layernorm2"),
    }[type(layer)]
    return {name: params(getattr(layer, name)) for name in parts}


X, SHAPE = normal(2, 5, D), (None, None, D)
ONE_INPUT = {
    "ComplexDense": (
        lambda **k: ComplexDense(F, "tanh", **k),
        lambda p, x: ref.linear(p, x, np.tanh),
    ),
    "ComplexFeedForward": (lambda **k: ComplexFeedForward(D, F, **k), ref.feed_forward),
    "ComplexLayerNorm": (
        lambda **k: ComplexLayerNorm(0.1, **k),
        lambda p, x: ref.layer_norm(p, x, 0.1),
    ),
    "ComplexEncoderLayer": (
        lambda **k: ComplexEncoderLayer(D, N, F, **k),
        lambda p, x: ref.encoder_layer(p, x, BLOCKED, N),
    ),
}


def call(layer, x):
    if isinstance(layer, ComplexEncoderLayer):
        return layer(x, mask=tf.constant(BLOCKED))
    return layer(x)


@pytest.mark.parametrize("name", ONE_INPUT)
def test_outputs_are_those_of_the_equations(name):
    make, reference = ONE_INPUT[name]
    layer = built(make(), SHAPE)
    output = call(layer, tf.constant(X, tf.complex64))
    assert output.dtype == tf.complex64
    expected = reference(params(layer), X)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("wanted", [True, False])
def test_attention_is_that_of_the_equations(wanted):
    layer = built(ComplexMultiHeadAttention(D, N), SHAPE, (None, None, 5), (None, None, 4))
    q, k, v = X, normal(2, 3, 5), normal(2, 3, 4)
    blocked = BLOCKED[..., :3]
    expected, exact = ref.multi_head_attention(params(layer), q, k, v, blocked, N)
    given = [tf.constant(z, tf.complex64) for z in (q, k, v)]
    output, weights = layer(*given, tf.constant(blocked), wanted)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=3e-5)
    if wanted:
        np.testing.assert_allclose(weights, exact, rtol=1e-5, atol=1e-5)
    else:
        assert weights is None


def encoder(layers=2, **options):
    layer = ComplexEncoder(layers, D, N, F, V, **options)
    return built(layer, (None, None))


@pytest.mark.parametrize(
    "schemes",
    [{}, {"phases": "zero"}, {"frequencies": "word-sharing", "phases": "dimension-sharing"}],
    ids=["own", "no phases", "shared"],
)
def test_the_encoder_is_that_of_the_equations(schemes):
    layer = encoder(**schemes)
    mask = create_padding_mask(IDS)
    expected = ref.encoder(params(layer), IDS, reference_numpy.padding_mask(IDS), N, D)
    np.testing.assert_allclose(layer(IDS, mask=mask), expected, rtol=1e-4, atol=1e-4)
    exact = encoder(dtype="float64", **schemes)
    np.testing.assert_allclose(exact(IDS, mask=mask), expected, rtol=1e-6, atol=1e-6)


def test_the_projection_is_that_of_the_equations():
    layer = built(ComplexToReal(F), SHAPE)
    dense = {"kernel": layer.dense.kernel.numpy(), "bias": layer.dense.bias.numpy()}
    output = layer(tf.constant(X, tf.complex64))
    assert output.dtype == tf.float32
    np.testing.assert_allclose(output, ref.to_real(dense, X), rtol=1e-5, atol=1e-5)


def test_gradients_of_every_weight_are_those_of_the_equations():
    """Slopes of the reference along a random direction of each weight, two layers deep."""
    layer, rng = encoder(dtype="float64"), np.random.default_rng(11)
    cotangent, mask = normal(2, 5, D, seed=5), reference_numpy.padding_mask(IDS)
    with tf.GradientTape() as tape:
        output = layer(tf.constant(IDS), mask=tf.constant(mask))
        loss = tf.reduce_sum(tf.math.real(output * np.conj(cotangent)))
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_variables])

    def loss_at(weight, values):
        kept = weight.numpy()
        weight.assign(values)
        out = ref.encoder(params(layer), IDS, mask, N, D)
        weight.assign(kept)
        return np.sum((out * np.conj(cotangent)).real)

    for weight, gradient in zip(layer.trainable_variables, gradients, strict=True):
        value, direction = weight.numpy(), rng.standard_normal(weight.shape)
        step = 1e-6
        ends = [loss_at(weight, value + s * direction) for s in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step)
        actual = np.sum(tf.convert_to_tensor(gradient) * direction)
        np.testing.assert_allclose(actual, slope, rtol=1e-5, atol=1e-6, err_msg=weight.path)


# Laws


def test_a_blocked_word_influences_no_other_to_the_last_bit():
    layer, mask = encoder(), create_padding_mask(IDS)
    other = np.where(IDS == 0, 9, IDS)
    one, two = layer(IDS, mask=mask).numpy(), layer(other, mask=mask).numpy()
    np.testing.assert_array_equal(one[IDS != 0], two[IDS != 0])
    assert (one[IDS == 0] != two[IDS == 0]).any()


def test_the_length_of_the_padding_is_irrelevant():
    layer = encoder()
    longer = np.pad(IDS, ((0, 0), (0, 4)))
    one = layer(IDS, mask=create_padding_mask(IDS))
    two = layer(longer, mask=create_padding_mask(longer))
    np.testing.assert_allclose(two[:, :5], one, atol=1e-5)


def test_bool_and_float_masks_are_opposite():
    layer = encoder()
    one, two = layer(IDS, mask=create_padding_mask(IDS)), layer(IDS, mask=tf.constant(IDS != 0))
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(layer(IDS), one, atol=1e-2)


def test_word_order_changes_the_output_only_through_the_frequencies():
    swapped, back = IDS[:, ::-1].copy(), slice(None, None, -1)
    layer = encoder()
    assert not np.allclose(layer(swapped)[:, back], layer(IDS), atol=1e-2)
    layer = encoder(frequencies="zero")
    np.testing.assert_allclose(layer(swapped)[:, back], layer(IDS), atol=1e-5)


def test_every_plan_gives_the_same():
    layer, expected = encoder(), None
    for plan in ("whole", AttentionPlan("rowwise", 40), AttentionPlan("blockwise", 40)):
        with attention_plan(plan):
            actual = layer(IDS, mask=create_padding_mask(IDS))
        expected = actual if expected is None else expected
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_real_input_is_a_complex_one_without_imaginary_part():
    layer = built(ComplexFeedForward(D, F), SHAPE)
    real = X.real.astype(np.float32)
    np.testing.assert_array_equal(layer(real), layer(real.astype(np.complex64)))


def test_dropout_drops_each_part_for_itself():
    x = tf.fill((50, 40), tf.constant(1 + 1j, tf.complex64))
    dropped = ComplexDropout(0.25)(x, training=True).numpy()
    for part in (dropped.real, dropped.imag):
        assert set(np.unique(part.round(4))) == {0, np.float32(1.3333)}
        assert 0.2 < np.mean(part == 0) < 0.3
    assert np.mean((dropped.real == 0) == (dropped.imag == 0)) < 0.8
    np.testing.assert_array_equal(ComplexDropout(0.25)(x), x)


def test_initial_weights_keep_the_variance():
    x = tf.constant(normal(200, 64), tf.complex64)
    output = ComplexDense(64)(x).numpy()
    np.testing.assert_allclose(np.mean(np.abs(output) ** 2), 2, rtol=0.1)
    np.testing.assert_allclose(np.var(output.real), np.var(output.imag), rtol=0.1)


# Learning


@pytest.mark.slow
def test_it_learns_to_tell_two_orders_of_the_same_words():
    """Whether word 5 comes before word 7, among words that say nothing."""
    rng = np.random.default_rng(1)
    ids = rng.integers(8, V, (256, 6)).astype(np.int32)
    places = np.array([rng.choice(6, 2, replace=False) for _ in ids])
    first, second = places.min(1), places.max(1)
    label = rng.integers(0, 2, len(ids))
    rows = np.arange(len(ids))
    ids[rows, np.where(label == 1, first, second)] = 5
    ids[rows, np.where(label == 1, second, first)] = 7

    tokens = keras.Input((None,), dtype="int32")
    x = ComplexToReal(16, "relu")(ComplexEncoder(1, 16, 2, 32, V, phases="zero")(tokens))
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(tokens, keras.layers.Dense(1, "sigmoid")(x))
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    model.fit(ids[:192], label[:192], batch_size=32, epochs=8, verbose=0)
    assert model.evaluate(ids[192:], label[192:], verbose=0)[1] > 0.9


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ComplexDense(0), "units: expected a positive integer, got 0"),
        (lambda: ComplexToReal(0), "units: .*got 0"),
        (lambda: ComplexFeedForward(D, 0), "dff: expected a positive integer, got 0"),
        (lambda: ComplexMultiHeadAttention(D, 3), "multiple of num_heads, got d_model=14 and num_"),
        (lambda: ComplexMultiHeadAttention(D, 0), "num_heads: expected a positive integer, got 0"),
        (lambda: ComplexEncoderLayer(D, 3, F), "d_model=14 and num_heads=3"),
        (lambda: ComplexEncoderLayer(D, N, 0), "dff: .*got 0"),
        (lambda: ComplexEncoder(0, D, N, F, V), "num_layers: .*got 0"),
        (lambda: ComplexEncoder(1, D, N, F, 0), "input_vocab_size: .*got 0"),
        (lambda: ComplexEncoder(1, 0, N, F, V), "d_model: .*got 0"),
        (lambda: ComplexEncoder(1, D, N, F, V, phases="zeros"), "phases: .*mean 'zero'"),
        (lambda: ComplexEncoderLayer(D, N, F)(tf.ones((1, 3, 6))), "x: expected width 14"),
        (
            lambda: ComplexMultiHeadAttention(D, N)(*[tf.ones((3, D))] * 3),
            "q: expected .batch, len",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_ids_that_are_not_integers():
    layer = ComplexEncoder(1, D, N, F, V)
    with pytest.raises(ValueError, match="ids: expected whole numbers below"):
        layer(IDS + np.float32(0.5))
    assert not layer.built and not layer.embedding.built


def test_an_integer_mask():
    with pytest.raises(ValueError, match="mask: expected float .*int32"):
        encoder()(IDS, mask=tf.constant(IDS == 0, tf.int32)[:, tf.newaxis, tf.newaxis])


def test_a_keras_mask_blocks_padding_and_goes_on():
    x = keras.layers.Embedding(V, D, mask_zero=True)(IDS)
    layer = ComplexEncoderLayer(D, N, F)
    output = layer(x)
    expected = layer(tf.convert_to_tensor(x.numpy()), mask=create_padding_mask(IDS))
    np.testing.assert_array_equal(output, expected)
    np.testing.assert_array_equal(output._keras_mask, IDS != 0)
