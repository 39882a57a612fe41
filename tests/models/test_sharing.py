"""ALBERT's two ideas in the translator: layers that share weights, narrow word vectors."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import Architecture, LanguageModel, Transformer, bert, greedy_decode
from tf_transformer.compression import prune_heads, quantized
from tf_transformer.layers import GatedFeedForward, RotaryPositions, ShawPositions
from tf_transformer.layers.embeddings import FactorizedEmbedding
from tf_transformer.layers.residuals import PreNorm

pytestmark = pytest.mark.one_of(10, "parts")

SHARED = Architecture(num_groups=2)
NARROW = Architecture(embedding_size=5)
BOTH = Architecture(
    positions=RotaryPositions(),
    residual=PreNorm(),
    feed_forward=GatedFeedForward("silu"),
    num_groups=1,
    embedding_size=7,
)
CHOICES = {"shared": SHARED, "narrow": NARROW, "both": BOTH}
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def made(choice, share_embeddings=False, **options):
    target = 11 if share_embeddings else 17
    sizes = ((3, 5), 24, 4, 13, 11, target, 19, 23)
    model = Transformer(
        *sizes, rate=0.0, share_embeddings=share_embeddings, architecture=choice, **options
    )
    model.build()
    return randomize(model, 2)


def pairs():
    rng = np.random.default_rng(4)
    source, target = rng.integers(1, 11, (3, 7)), rng.integers(1, 11, (3, 5))
    source[0, 4:], target[1, 3:] = 0, 0
    return tf.constant(source), tf.constant(target)


def test_adjacent_layers_are_the_same():
    model = made(SHARED)
    numbers = [id(layer) for layer in model.encoder.enc_layers]
    assert [numbers.index(n) for n in numbers] == [0, 0, 2]
    numbers = [id(layer) for layer in model.decoder.dec_layers]
    assert [numbers.index(n) for n in numbers] == [0, 0, 0, 3, 3]
    assert len(made(Architecture(num_groups=9)).encoder.enc_layers) == 3


@pytest.mark.one_of(4)
@pytest.mark.parametrize("parts", [{}, {"positions": ShawPositions(3)}], ids=str)
def test_the_same_as_layers_with_equal_weights(parts):
    model, whole = made(Architecture(num_groups=2, **parts)), made(Architecture(**parts))
    stacks = (
        (model.encoder.enc_layers, whole.encoder.enc_layers),
        (model.decoder.dec_layers, whole.decoder.dec_layers),
    )
    for shared, own in stacks:
        for one, other in zip(shared, own, strict=True):
            other.set_weights(one.get_weights())
    whole.encoder.embedding.set_weights(model.encoder.embedding.get_weights())
    whole.decoder.embedding.set_weights(model.decoder.embedding.get_weights())
    whole.final_layer.set_weights(model.final_layer.get_weights())
    np.testing.assert_array_equal(model(pairs()), whole(pairs()))
    per_layer = [
        sum(w.shape.num_elements() for w in layer.weights)
        for layer in (*whole.encoder.enc_layers[:1], *whole.decoder.dec_layers[:3])
    ]
    assert whole.count_params() - model.count_params() == sum(per_layer)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("share_embeddings", [False, True])
def test_narrow_vectors_are_a_table_of_the_whole_width(share_embeddings):
    model = made(NARROW, share_embeddings)
    whole = made(Architecture(), share_embeddings)
    for one, other in ((model.encoder, whole.encoder), (model.decoder, whole.decoder)):
        factors = one.embedding.embedding
        table = factors.table.embeddings.numpy() @ factors.projection.numpy()
        other.embedding.embedding.embeddings.assign(table)
        pairs_of_layers = zip(
            getattr(one, "enc_layers", None) or one.dec_layers,
            getattr(other, "enc_layers", None) or other.dec_layers,
            strict=True,
        )
        for mine, theirs in pairs_of_layers:
            theirs.set_weights(mine.get_weights())
    if not share_embeddings:
        whole.final_layer.set_weights(model.final_layer.get_weights())
    np.testing.assert_allclose(model(pairs()), whole(pairs()), rtol=1e-4, atol=1e-5)
    tables = 1 if share_embeddings else 2
    vocabulary = 11 + (0 if share_embeddings else 17)
    saved = vocabulary * 24 - (vocabulary * 5 + tables * 5 * 24)
    assert whole.count_params() - model.count_params() == saved


@pytest.mark.slow
@every_choice
@pytest.mark.one_of(10)
@pytest.mark.parametrize("share_embeddings", [False, True])
def test_cached_decoding(choice, share_embeddings):
    model, (source, _) = made(choice, share_embeddings), pairs()
    state = model.start(source, 9)
    ids = greedy_decode(model.step, state, 3, start_id=1, end_id=2, max_length=9)
    so_far = tf.ones((3, 1), ids.dtype)
    for step in range(9):
        logits = model((source, so_far)).numpy()[:, -1]
        likely = 1 + logits[:, 1:].argmax(-1)
        running = ids.numpy()[:, step] > 0
        np.testing.assert_array_equal(likely[running], ids.numpy()[running, step])
        so_far = tf.concat([so_far, likely[:, None].astype(so_far.dtype.name)], 1)


@pytest.mark.slow
@every_choice
@pytest.mark.one_of(10)
def test_trains_and_is_saved(choice, tmp_path):
    model, (source, target) = made(choice, True), pairs()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    losses = model.fit((source, target), target, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.architecture == choice and len(again.weights) == len(model.weights)
    np.testing.assert_array_equal(again(pairs()), model(pairs()))
    model.save_weights(tmp_path / "model.weights.h5")
    other = made(choice, True)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(pairs()), model(pairs()))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    models = [
        Transformer(
            3, 24, 4, 13, 11, 11, 19, 23, share_embeddings=True, architecture=BOTH, dtype=dtype
        )
        for dtype in (policy, "float32")
    ]
    for model in models:
        model.build()
    models[1].set_weights(models[0].get_weights())
    logits, expected = (np.asarray(model(pairs()), np.float32) for model in models)
    assert np.isfinite(logits).all()
    assert abs(logits - expected).max() < 0.1 * abs(expected).max()


def test_gradients_of_a_shared_layer_are_the_sum():
    model = made(SHARED)
    kernel = model.encoder.enc_layers[0].ffn.layers[0].kernel.value
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(pairs())[0] ** 2)
    found = tape.gradient(loss, kernel).numpy()
    delta, steps = np.random.default_rng(1).standard_normal(kernel.shape) * 1e-3, []
    before = kernel.numpy()
    for sign in (1, -1):
        kernel.assign(before + sign * delta)
        steps.append(float(tf.reduce_sum(model(pairs())[0] ** 2)))
    assert (steps[0] - steps[1]) / 2 == pytest.approx((found * delta).sum(), rel=5e-2)


@pytest.mark.slow
def test_a_language_model_and_int8():
    model = LanguageModel(4, 24, 4, 13, 29, 19, architecture=BOTH)
    model.build()
    assert len({id(layer) for layer in model.decoder.enc_layers}) == 1
    model = Transformer(3, 24, 4, 13, 11, 11, 19, 23, share_embeddings=True, architecture=BOTH)
    model.build()
    small = quantized(model, [(pairs(), None)])
    table = small.encoder.embedding.embedding.table
    assert table.embeddings.dtype == "int8"
    off = abs(small(pairs()) - model(pairs())).numpy().max()
    assert off < 0.1 * abs(model(pairs())).numpy().max()


def test_bad_input():
    with pytest.raises(ValueError, match="num_groups: expected None or a positive int, got 0"):
        Architecture(num_groups=0)
    with pytest.raises(ValueError, match="embedding_size: expected less than 24, .* got 24"):
        made(Architecture(embedding_size=24))
    with pytest.raises(ValueError, match="embedding_size: expected less than 8"):
        FactorizedEmbedding(11, 9, 8)
    sizes = {"encoder": [(4, 13)] * 3, "decoder": [(4, 4, 13)] * 5}
    with pytest.raises(ValueError, match="layer_sizes: expected None with num_groups=2"):
        made(SHARED, layer_sizes=sizes)
    with pytest.raises(ValueError, match="model: expected layers with weights of their own"):
        prune_heads(made(SHARED), {"encoder": {0: [1]}})
    for choice in (
        {"attention_bias": "qkv"},
        {"scale_embeddings": False},
        {"embedding_norm": True},
    ):
        with pytest.raises(ValueError, match=f"expected the default {next(iter(choice))}"):
            bert.Bert(bert.BertConfig(13, 8, 2, 2, 16), architecture=Architecture(**choice))
    with pytest.raises(ValueError, match="architecture: expected num_groups and embedding_size"):
        bert.Bert(bert.BertConfig(13, 8, 2, 2, 16), architecture=SHARED)
