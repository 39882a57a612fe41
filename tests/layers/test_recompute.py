"""Layers computed again for the gradients: the same gradients, draws and states, and less kept."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import (
    Architecture,
    BatchNorm,
    LanguageModel,
    MacaronFeedForward,
    PreNorm,
    SmoothedCrossentropy,
    T5Positions,
    Transformer,
    add_adapters,
    recompute_layers,
)

pytestmark = pytest.mark.one_of(10, "models")

IDS = np.array([[7, 11, 5, 9, 1, 2, 4], [3, 8, 6, 2, 5, 0, 0]], np.int32)
T5 = Architecture(T5Positions(4, 5), residual=PreNorm(), feed_forward=MacaronFeedForward())


def language_model(**options):
    return LanguageModel(2, 8, 2, 16, 13, 9, rate=0.3, **options), IDS


def transformer(**options):
    return Transformer(1, 8, 2, 16, 13, 13, 9, 9, rate=0.3, **options), (IDS, IDS[:, ::-1])


MODELS = {
    "language model": language_model,
    "transformer": transformer,
    "shared positions": lambda **options: transformer(architecture=T5, **options),
    "shared layers": lambda **options: language_model(
        architecture=Architecture(num_groups=1), **options
    ),
    "moving averages": lambda **options: language_model(
        architecture=Architecture(norm=BatchNorm()), **options
    ),
}


def made(make, **options):
    keras.utils.set_random_seed(3)
    model, inputs = make(**options)
    model.build()
    return model, inputs


def steps(make, recompute, jit, **options):
    """Gradients of two steps, and the states after them: seeds, moving averages."""
    model, inputs = made(make, **options)
    weights = [weight.value for weight in model.trainable_weights]

    def step():
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(inputs, training=True), tf.float32)
            loss = tf.reduce_mean(tf.square(outputs))
        gradients = tape.gradient(loss, weights)
        return [tf.convert_to_tensor(gradient) for gradient in (loss, *gradients)]

    with recompute_layers(recompute):
        run = step if jit is None else tf.function(step, jit_compile=jit)
        found = [*run(), *run()]
    return found, [variable.numpy() for variable in model.non_trainable_variables]


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    ("name", "jit"),
    [
        *((name, jit) for name in MODELS for jit in (None, False)),
        pytest.param("transformer", True, marks=pytest.mark.one_of(6)),
    ],
)
def test_gradients_and_states_are_those_of_a_plain_step(name, jit):
    plain, states = steps(MODELS[name], False, jit)
    found, states_found = steps(MODELS[name], True, jit)
    half = len(plain) // 2
    assert not np.array_equal(plain[0], plain[half])  # another dropout
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for one, other in zip(states_found, states, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.slow
def test_mixed_precision():
    plain, _ = steps(transformer, False, False, dtype="mixed_bfloat16")
    found, _ = steps(transformer, True, False, dtype="mixed_bfloat16")
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-2)


@pytest.mark.slow
def test_training_with_adapters_is_the_same():
    trained = []
    for recompute in (False, True):
        model, ids = made(language_model)
        add_adapters(model, rank=2)
        with recompute_layers(recompute):
            model.compile(keras.optimizers.SGD(0.1), SmoothedCrossentropy(0.0), jit_compile=False)
            model.fit(ids, ids, epochs=3, verbose=0)
        trained.append([weight.numpy() for weight in model.weights])
    for one, other in zip(*trained, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_each_layer_runs_again_in_training_alone(monkeypatch):
    model, ids = made(language_model)
    calls = []
    for layer in model.decoder.enc_layers:
        call = layer.call
        monkeypatch.setattr(layer, "call", lambda *a, f=call, **k: (calls.append(1), f(*a, **k))[1])

    def count(training, recompute):
        calls.clear()
        with recompute_layers(recompute), tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids, training=training))
        tape.gradient(loss, model.trainable_weights[0].value)
        return len(calls)

    assert [count(True, True), count(True, False), count(False, True)] == [4, 2, 2]
    with recompute_layers(), recompute_layers(False):
        assert count(True, False) == 2


def test_a_graph_keeps_less():
    """What the backward pass reads of the forward pass: the inputs of layers, not their inside."""

    def kept(recompute):
        model, ids = made(language_model)
        weights = [weight.value for weight in model.trainable_weights]

        def forward_and_back(inputs):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(inputs, training=True))
            tf.debugging.assert_all_finite(loss, "", name="border")
            return tape.gradient(loss, weights)

        with recompute_layers(recompute):
            graph = tf.function(forward_and_back).get_concrete_function(ids).graph
        operations = graph.get_operations()
        names = [op.name for op in operations]
        border = next(n for n, name in enumerate(names) if "border" in name)
        before = {id(op) for op in operations[:border]}
        read = {x.name: x for op in operations[border:] for x in op.inputs if id(x.op) in before}
        return sum(x.shape.rank is not None and x.shape.rank >= 3 for x in read.values())

    assert kept(True) < kept(False) / 3


def test_attention_weights_in_training():
    model, ids = made(language_model)
    with recompute_layers():
        _, weights = model.decoder(ids, True, return_attention_weights=True)
    assert [weight.shape.as_list() for weight in weights.values()] == [[2, 2, 7, 7]] * 2
