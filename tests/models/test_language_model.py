"""The decoder-only model, against the float64 reference and by its laws.

Axes: B=3 batch, T=7 length, D=24 width, N=6 heads, F=11 inner width, V=13 vocabulary.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize
from reference_architecture import Reference, weights_of
from slopes import by_path, check_slope

from tf_transformer import (
    AlibiPositions,
    Architecture,
    BatchNorm,
    FeedForward,
    FusedAdam,
    GatedFeedForward,
    LanguageModel,
    LayerNorm,
    LearnedPositions,
    MacaronFeedForward,
    NoPositions,
    NoResidual,
    PreNorm,
    RMSNorm,
    RotaryPositions,
    ShawPositions,
    SmoothedCrossentropy,
    T5Positions,
    greedy_decode,
)

pytestmark = pytest.mark.one_of(10)  # of the cases of each test

IDS = np.array([[1, 7, 9, 4, 0, 0, 0], [1, 3, 2, 0, 0, 0, 0], [1, 12, 4, 4, 6, 8, 2]])
LAYERS, HEADS = 2, 6

CHOICES = {
    "paper": Architecture(),
    "pre-norm, grouped": Architecture(
        norm=RMSNorm(1e-3),
        residual=PreNorm(),
        feed_forward=GatedFeedForward(),
        num_key_value_heads=2,
    ),
    "no residual, GELU": Architecture(
        residual=NoResidual(), feed_forward=FeedForward("gelu"), key_dim=3
    ),
    "batch norm, Macaron": Architecture(
        norm=BatchNorm(epsilon=1e-3), feed_forward=MacaronFeedForward(), residual=PreNorm()
    ),
    "shared, no positions": Architecture(NoPositions(), share_qk=True),
}
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
IN_ATTENTION = {
    type(part).__name__: Architecture(part)
    for part in (
        AlibiPositions(),
        LearnedPositions(9),
        RotaryPositions(),
        ShawPositions(2),
        T5Positions(4, 5),
    )
}
every_law = pytest.mark.parametrize(
    "choice", [*CHOICES.values(), *IN_ATTENTION.values()], ids=[*CHOICES, *IN_ATTENTION]
)


def made(choice=None, **options):
    model = LanguageModel(LAYERS, 24, HEADS, 11, 13, 9, rate=0.0, architecture=choice, **options)
    model.build()
    return randomize(model, 3)


def reference(choice, weights, training=False):
    model = Reference(weights, choice.to_dict(), HEADS, LAYERS, training)
    x = model.encoder(IDS, "decoder", causal=True)
    return (x @ model.weights["decoder/embedding/embedding/embeddings"].T)[IDS != 0]


@every_choice
def test_logits_are_those_of_the_reference(choice):
    model = made(choice, dtype="float64")
    expected = reference(choice, weights_of(model))
    logits = model(IDS, training=False)
    # TensorFlow 2.21 rounds the constants of GELU to float32.
    np.testing.assert_allclose(logits[IDS != 0], expected, atol=2e-6 * np.abs(expected).max())


@every_choice
def test_gradients_are_those_of_the_reference(choice):
    """In training, along a random direction of all weights."""
    model = made(choice, dtype="float64")
    check_slope(
        lambda: tf.boolean_mask(model(IDS, training=True), IDS != 0),
        by_path(model),
        weights_of(model),
        lambda weights: reference(choice, weights, training=True),
    )


@pytest.mark.one_of(10)
@every_law
def test_the_future_cannot_change_the_past(choice):
    model = made(choice)
    before = model(IDS, training=False).numpy()
    for t in range(1, 7):
        changed = IDS.copy()
        changed[:, t:] = [[5], [11], [0]]
        after = model(changed, training=False).numpy()
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert not np.allclose(after[:, t:], before[:, t:])


@every_law
def test_padding_is_irrelevant(choice):
    model = made(choice)
    expected = model(IDS, training=False).numpy()
    longer = model(np.pad(IDS, ((0, 0), (0, 2))), training=False)
    np.testing.assert_allclose(longer[:, :7], expected, atol=1e-5 * np.abs(expected).max())
    table = model.decoder.embedding.embedding.embeddings
    gap = np.where(np.arange(7) == 2, 0, IDS)  # padding before tokens
    before = model(gap, training=False).numpy()[..., 1:]  # but not as an output
    table.assign(np.concatenate([np.full((1, 24), 9.0), table.numpy()[1:]]))
    after = model(gap, training=False).numpy()[..., 1:]
    np.testing.assert_array_equal(after[gap != 0], before[gap != 0])


@pytest.mark.one_of(10)
@every_law
def test_files_and_configs_keep_the_model(choice, tmp_path):
    model = made(choice)
    expected = model(IDS, training=False)
    model.save_weights(tmp_path / "model.weights.h5")
    model.save(tmp_path / "model.keras")
    again = LanguageModel.from_config(model.get_config())
    again.build()
    again.load_weights(tmp_path / "model.weights.h5")
    read = keras.models.load_model(tmp_path / "model.keras")
    for other in (again, read):
        np.testing.assert_allclose(other(IDS, training=False), expected, atol=1e-6)
        assert other.get_config()["architecture"] == model.get_config()["architecture"]


@pytest.mark.slow
def test_fit_learns_a_cycle():
    """3, 4, ..., 12, 3, ... from anywhere, and what was learned can be decoded."""
    keras.utils.set_random_seed(1)
    model = LanguageModel(1, 16, 2, 32, 13, 9, rate=0.0)
    model.compile(FusedAdam(0.02), SmoothedCrossentropy(0.0))
    tokens = (np.arange(10)[:, None] + np.arange(8)) % 10 + 3
    ids = np.concatenate([np.ones((10, 1), int), tokens], 1)
    model.fit(ids[:, :-1], ids[:, 1:], epochs=40, batch_size=10, verbose=0)
    prompt = tokens[:, :2]
    state = model.start(prompt, 8)
    found = greedy_decode(model.step, state, 10, start_id=1, end_id=2, max_length=8)
    np.testing.assert_array_equal(found, tokens)


def test_number_of_weights_of_gpt_2():
    """As published for its smallest size; counted for one and two layers."""
    architecture = Architecture(
        LearnedPositions(1024),
        norm=LayerNorm(1e-5),
        residual=PreNorm(),
        feed_forward=FeedForward("gelu_new"),
    )
    counts = []
    for layers in (0, 1):
        model = LanguageModel(
            layers, 768, 12, 3072, 50257, 1024, architecture=architecture, dtype="float16"
        )
        model.build()
        counts.append(model.count_params())
    assert counts[0] + 12 * (counts[1] - counts[0]) == 124_439_808


def test_texts_longer_than_the_positions():
    with pytest.raises(ValueError, match="max_length: expected at most 9 .max_position."):
        made().start([[5]], 10)
    with pytest.raises(ValueError, match="prompt: expected at most 9 tokens .* got 10"):
        made().start(np.ones((1, 10), int), 9)
    with pytest.raises(ValueError, match="positions"):
        made()(np.ones((1, 10), int))
