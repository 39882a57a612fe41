"""Every choice of an architecture in a whole model, against the float64 reference.

Axes: B=3 batch, S=7 and T=5 lengths, D=24 width, N=6 heads, F=11 inner width.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize
from reference_architecture import Reference, weights_of
from slopes import by_path, check_slope

from tf_transformer import (
    Architecture,
    BatchNorm,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    MacaronFeedForward,
    NaiveBatchNorm,
    NoPositions,
    NoResidual,
    PreNorm,
    RMSNorm,
    Transformer,
)

pytestmark = pytest.mark.one_of(10, "parts")

INP = np.array([[5, 6, 7, 2, 0, 0, 0], [9, 2, 3, 4, 4, 8, 2], [3, 4, 8, 2, 0, 0, 0]])
TAR = np.array([[1, 7, 9, 0, 0], [1, 3, 0, 0, 0], [1, 12, 4, 4, 6]])
LAYERS, HEADS = 2, 6

CHOICES = {
    "paper": Architecture(),
    "pre-norm": Architecture(residual=PreNorm()),
    "no residual": Architecture(residual=NoResidual()),
    "RMS": Architecture(norm=RMSNorm(1e-3)),
    "layer norm, epsilon": Architecture(norm=LayerNorm(0.1)),
    "batch": Architecture(norm=BatchNorm(epsilon=1e-3)),
    "batch, pre-norm": Architecture(norm=BatchNorm(epsilon=1e-3), residual=PreNorm()),
    "naive batch": Architecture(norm=NaiveBatchNorm(epsilon=1e-3)),
    "GELU": Architecture(feed_forward=FeedForward("gelu")),
    "GELU, tanh": Architecture(feed_forward=FeedForward("gelu_new")),
    "SwiGLU": Architecture(feed_forward=GatedFeedForward()),
    "GEGLU": Architecture(feed_forward=GatedFeedForward("gelu")),
    "Macaron": Architecture(feed_forward=MacaronFeedForward()),
    "Macaron, pre-norm": Architecture(feed_forward=MacaronFeedForward(), residual=PreNorm()),
    "narrow heads": Architecture(key_dim=3),
    "wide heads": Architecture(key_dim=8, positions=NoPositions()),
    "grouped": Architecture(num_key_value_heads=2),
    "multi-query": Architecture(num_key_value_heads=1, key_dim=5),
    "shared": Architecture(share_qk=True),
    "window": Architecture(window=1),
    "all together": Architecture(
        NoPositions(), RMSNorm(), PreNorm(), GatedFeedForward(), 5, 3, window=2
    ),
}
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def made(choice, **options):
    model = Transformer(
        LAYERS, 24, HEADS, 11, 13, 13, 7, 7, rate=0.0, architecture=choice, **options
    )
    model.build()
    return randomize(model, 3)


def reference(choice, weights, training=False):
    logits = Reference(weights, choice.to_dict(), HEADS, LAYERS, training).transformer(INP, TAR)
    return logits[TAR != 0]


@pytest.mark.one_of(10)
@every_choice
def test_logits_are_those_of_the_reference(choice):
    model = made(choice, dtype="float64")
    expected = reference(choice, weights_of(model))
    logits = model((INP, TAR), training=False)
    # TensorFlow 2.21 rounds the constants of GELU to float32.
    np.testing.assert_allclose(logits[TAR != 0], expected, atol=2e-6 * np.abs(expected).max())


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", ["batch", "Macaron, pre-norm", "multi-query", "all together"])
def test_xla_agrees(name):
    model = made(CHOICES[name])
    compiled = tf.function(model, jit_compile=True, autograph=False)
    xla = compiled((tf.constant(INP), tf.constant(TAR)), training=False)
    expected = model((INP, TAR), training=False)[TAR != 0]
    np.testing.assert_allclose(xla[TAR != 0], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.one_of(10)
@every_choice
def test_gradients_are_those_of_the_reference(choice):
    """In training, along a random direction of all weights."""
    model = made(choice, dtype="float64")
    check_slope(
        lambda: tf.boolean_mask(model((INP, TAR), training=True), TAR != 0),
        by_path(model),
        weights_of(model),
        lambda weights: reference(choice, weights, training=True),
    )


@pytest.mark.slow
@pytest.mark.one_of(10)
@every_choice
def test_files_and_configs_keep_the_choice(choice, tmp_path):
    model = made(choice)
    expected = model((INP, TAR), training=False)
    model.save_weights(tmp_path / "model.weights.h5")
    again = Transformer.from_config(model.get_config())
    again.build()
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(again((INP, TAR), training=False), expected, atol=1e-6)
    assert Architecture.from_dict(again.get_config()["architecture"]) == choice


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch", "Macaron, pre-norm"])
def test_steps_of_fit_change_every_weight(name):
    model = made(CHOICES[name])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True, ignore_class=0))
    before = model.get_weights()
    labels = np.roll(TAR, -1, 1) * (TAR != 0)
    history = model.fit((INP, TAR), labels, batch_size=3, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    changed = [np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert np.mean(changed) > 0.9


@pytest.mark.slow
def test_weights_of_a_choice():
    """D=24, N=6, F=11, 2 + 2 layers: what differs from the paper's model."""
    plain = made(None).count_params()
    width = 24 * 24 + 24  # a projection
    for name, difference in {
        "paper": 0,
        "pre-norm": 2 * 2 * 24,
        "no residual": 0,
        "RMS": -(2 * 2 + 2 * 3) * 24,
        "batch": (2 * 2 + 2 * 3) * 2 * 24,  # moving statistics
        "SwiGLU": 4 * (24 * 11 + 11),
        "Macaron": 4 * (2 * 24 * 11 + 11 + 24 + 2 * 24),
        "shared": -4 * width,
        "grouped": -6 * 2 * (width - 24 * 8 - 8),
        "multi-query": -6 * (4 * width - (24 * 30 + 30) - 2 * (24 * 5 + 5) - (30 * 24 + 24)),
        "window": 0,
    }.items():
        assert made(CHOICES[name]).count_params() - plain == difference, name


@pytest.mark.parametrize("norm", [BatchNorm, NaiveBatchNorm])
def test_padding_in_the_statistics_of_a_batch(norm):
    """More padding changes the output of a naive norm for the same text, and nothing else."""
    model = made(Architecture(norm=norm()))
    padded = np.pad(INP, ((0, 0), (0, 9)))
    one, other = (model((x, TAR), training=True) for x in (INP, padded))
    difference = np.abs(one - other).max() / np.abs(one).max()  # the logits go up to 11
    assert difference < 1e-4 if norm is BatchNorm else difference > 1e-2


def test_a_batch_without_a_token():
    model = made(Architecture(norm=BatchNorm()))
    with pytest.raises(tf.errors.InvalidArgumentError, match="tokens: expected at least one"):
        model((np.zeros((1, 3), int), np.ones((1, 2), int)), training=True)
    graph = tf.function(lambda inputs: model(inputs, training=True))
    with pytest.raises(tf.errors.InvalidArgumentError, match="tokens: expected at least one"):
        graph((tf.zeros((1, 3), tf.int32), tf.ones((1, 2), tf.int32)))
