"""The fused optimizer equals Keras's Adam, however it is used."""

import keras
import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf

from tf_transformer import FusedAdam, InverseSquareRootSchedule

PAPER = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}


def train(optimizer, steps=7, run_eagerly=False, jit_compile=False):
    """Weights and optimizer variables after some steps."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((3,), dtype="int32"), keras.layers.Embedding(11, 5), keras.layers.Dense(2)]
    )
    model.compile(optimizer, "mse", run_eagerly=run_eagerly, jit_compile=jit_compile)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        x = rng.permutation(11)[None, :3]  # a gradient of rows without duplicates
        model.train_on_batch(x, rng.standard_normal((1, 3, 2)))
    return [variable.numpy() for variable in (*model.weights, *optimizer.variables)]


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "options",
    [
        {},
        PAPER,
        {**PAPER, "learning_rate": InverseSquareRootSchedule(16, 3)},
        {**PAPER, "amsgrad": True},
        {**PAPER, "use_ema": True, "ema_momentum": 0.7},
        {**PAPER, "global_clipnorm": 0.01},
        {**PAPER, "clipnorm": 0.3},
        {**PAPER, "weight_decay": 0.1},
        {**PAPER, "gradient_accumulation_steps": 3},
    ],
    ids=lambda options: ", ".join(name for name in options if name not in PAPER),
)
def test_weights_and_state_are_those_of_keras(options):
    options = {"learning_rate": 0.01, **options}
    found, expected = train(FusedAdam(**options)), train(keras.optimizers.Adam(**options))
    # Keras rounds 1 - beta_2 once, TensorFlow's operation 1 - float32(beta_2).
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("how", [{"run_eagerly": True}, {"jit_compile": True}])
@pytest.mark.one_of(4)
def test_eagerly_and_by_xla(how):
    expected = train(FusedAdam(0.01, **PAPER))
    for one, other in zip(train(FusedAdam(0.01, **PAPER), **how), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_float64_weights_follow_the_paper():
    rng = np.random.default_rng(0)
    optimizer = FusedAdam(2.0**-10, 0.875, 0.96875, 1e-9)
    param = rng.standard_normal((3, 5))
    variable = keras.Variable(param, dtype="float64")
    m = v = np.zeros_like(param)
    for step in range(1, 21):
        grad = rng.standard_normal((3, 5))
        optimizer.apply([tf.constant(grad)], [variable])
        param, m, v = ref.adam_update(param, grad, m, v, step, 2.0**-10, 0.875, 0.96875)
        np.testing.assert_allclose(variable.numpy(), param, atol=1e-12)


@pytest.mark.parametrize(
    ("option", "scales"),
    [("clipnorm", (5.0, 1.0, 1.0)), ("global_clipnorm", 3 * (np.sqrt(25.25),))],
)
def test_norms_are_clipped_in_the_dtype_of_each_gradient(option, scales):
    gradients = [np.array([3.0, -4.0]), np.array([[0.3], [0.4]]), np.zeros(3)]
    dtypes = ("float64", "float32", "float32")
    optimizer = FusedAdam(0.125, 0.875, 0.96875, 1.0, **{option: 1.0})
    weights = [
        keras.Variable(np.zeros_like(g), dtype=dtype)
        for g, dtype in zip(gradients, dtypes, strict=True)
    ]
    optimizer.apply(
        [tf.constant(g, w.dtype) for g, w in zip(gradients, weights, strict=True)], weights
    )
    epsilon = 1 / np.sqrt(1 - 0.96875)  # added after the correction
    for w, g, scale in zip(weights, gradients, scales, strict=True):
        expected, *_ = ref.adam_update(0.0, g / scale, 0.0, 0.0, 1, 0.125, 0.875, 0.96875, epsilon)
        np.testing.assert_allclose(w, expected, rtol=1e-6)


@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_large_gradients_of_16_bits_are_clipped(option, dtype):
    """The sum of squares is no float16; a sum of bfloat16 stops at 256 equal squares."""
    weights = [keras.Variable(np.zeros(1024, np.float32), dtype=dtype) for _ in range(2)]
    gradients = [tf.fill([1024], tf.constant(value, dtype)) for value in (300.0, 0.0)]
    optimizer = FusedAdam(**{option: 1.0})
    optimizer.build(weights)
    found = [tf.cast(g, "float32") for g in optimizer._clip_gradients(gradients)]
    np.testing.assert_allclose(found, [[1 / 32] * 1024, [0] * 1024], rtol=2**-8)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_global_norm_that_is_not_finite_reaches_every_weight(value, jit_compile):
    optimizer = FusedAdam(0.1, global_clipnorm=1.0)
    weights = [keras.Variable(np.ones(2, np.float32)) for _ in range(2)]
    optimizer.build(weights)
    gradients = [tf.constant([1.0, value]), tf.ones(2)]
    tf.function(lambda: optimizer.apply(gradients, weights), jit_compile=jit_compile)()
    assert np.isnan(weights).all()


def test_a_keras_optimizer_goes_on_from_its_state():
    fused, plain = FusedAdam(0.01, **PAPER), keras.optimizers.Adam(0.01, **PAPER)
    weights = [keras.Variable(np.ones(3, np.float32)) for _ in range(2)]
    gradient = tf.constant([1.0, -2.0, 3.0])
    fused.apply([gradient], [weights[0]])
    plain.build([weights[1]])
    weights[1].assign(weights[0])
    for one, other in zip(plain.variables, fused.variables, strict=True):
        one.assign(other)
    fused.apply([gradient / 2], [weights[0]])
    plain.apply([gradient / 2], [weights[1]])
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-6)


def test_a_row_that_comes_twice_is_summed_first():
    # Keras 3.15 squares the parts instead of the sum.
    rows = tf.IndexedSlices(tf.constant([[1.0], [-1.5], [0.5]]), tf.constant([1, 1, 2]), (4, 1))
    optimizers = FusedAdam(0.1), keras.optimizers.Adam(0.1)
    weights = [keras.Variable(np.ones((4, 1), np.float32)) for _ in optimizers]
    for gradient in (rows, 3 * tf.convert_to_tensor(rows)):
        optimizers[0].apply([gradient], [weights[0]])
        optimizers[1].apply([tf.convert_to_tensor(gradient)], [weights[1]])
        np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)


def test_it_goes_through_a_config():
    optimizer = FusedAdam(0.25, **PAPER, use_ema=True)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(again) is FusedAdam
    assert again.get_config() == optimizer.get_config()


def test_the_global_norm_is_that_of_the_summed_rows_of_an_embedding():
    """Keras takes the norm of the rows as they come: 2 instead of 2 sqrt(2) here."""
    table = tf.Variable(tf.zeros((4, 1)))
    optimizer = FusedAdam(1.0, epsilon=1.0, global_clipnorm=1.0)
    optimizer.build([table])
    twice = tf.IndexedSlices(tf.ones((4, 1)), tf.constant([1, 1, 2, 2]), tf.constant([4, 1]))
    optimizer.apply_gradients([(twice, table)])
    gradient = 2 / np.sqrt(8)  # of each of the two rows, clipped
    step = np.sqrt(1 - 0.999) / (1 - 0.9)
    expected = -step * 0.1 * gradient / (np.sqrt(0.001) * gradient + 1.0)
    np.testing.assert_allclose(table.numpy()[:, 0], [0, expected, expected, 0], rtol=1e-3)
