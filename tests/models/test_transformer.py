"""The Transformer end to end: reference values, and properties that hold for any weights.

Axes: B batch, S source length, T target length, V vocabulary.
"""

import numpy as np
import parameter_trees as trees
import pytest
import reference_numpy as ref
import tensorflow as tf
from loading import close, load, vectors
from vector_checks import D, F, N, check_gradients, reference_transformer

from tf_transformer import MaskedAccuracy, SmoothedCrossentropy, Transformer

pytestmark = pytest.mark.one_of(3, "core")


@pytest.fixture(scope="module")
def model():
    return reference_transformer()


@pytest.fixture(scope="module")
def data():
    return vectors("transformer")


# tests/layers/test_layers_reference.py compares logits and attention weights with the vectors


def test_loss_and_gradients_match_the_vectors(data):
    check_gradients(SmoothedCrossentropy(label_smoothing=float(data["loss_epsilon"])))


def test_accuracy_matches_the_vectors(model, data):
    logits = model((data["inp"], data["tar"]))
    close(MaskedAccuracy()(data["labels"], logits), data["accuracy"])


def test_one_table_for_three_uses_matches_the_reference(data):
    rng = np.random.default_rng(4)
    tree = trees.random_transformer_params(
        rng, num_layers=1, d_model=D, dff=F, input_vocab_size=19, target_vocab_size=19, tied=True
    )
    tree["decoder"]["embedding"] = tree["encoder"]["embedding"]
    model = Transformer(1, D, N, F, 19, 19, pe_input=8, pe_target=8, share_embeddings=True)
    model.build()
    load(model, tree)
    assert sum(weight.shape == (19, D) for weight in model.weights) == 1
    expected, _ = ref.transformer(tree, data["inp"], data["tar"], N)
    close(model((data["inp"], data["tar"])), expected)


# Properties


def test_future_tokens_cannot_change_past_logits(model, data):
    before = model((data["inp"], data["tar"])).numpy()
    for t in range(1, 3):
        changed = data["tar"].copy()
        changed[:, t:] = [[9], [4]]
        after = model((data["inp"], changed)).numpy()
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert not np.allclose(after[:, t:], before[:, t:])


def test_the_amount_of_padding_is_irrelevant(model, data):
    inp, tar = data["inp"], data["tar"]
    before = model((inp, tar))
    longer = np.pad(inp, ((0, 0), (0, 4))), np.pad(tar, ((0, 0), (0, 3)))
    close(model(longer)[:, :3], before)
    tokens = model.encoder.embedding.embedding
    # The embedding of the padding id does not matter either, where it is a key and not a query.
    table = tokens.embeddings.numpy().copy()
    try:
        tokens.embeddings.assign(np.concatenate([[[9.0] * D], table[1:]]))
        np.testing.assert_array_equal(model((inp, tar)), before)
    finally:
        tokens.embeddings.assign(table)


def test_rows_of_every_attention_sum_to_one(model, data):
    _, weights = model((data["inp"], data["tar"]), False, True)
    assert len(weights) == 4
    for name, array in weights.items():
        np.testing.assert_allclose(array.numpy().sum(-1), 1.0, rtol=1e-6, err_msg=name)
        mask = data["combined_mask" if name.endswith("block1") else "dec_padding_mask"]
        assert (array.numpy()[np.broadcast_to(mask, array.shape) == 1] == 0.0).all()


def test_a_batch_equals_its_rows_one_by_one(model, data):
    together = model((data["inp"], data["tar"]))
    for row in range(2):
        at = slice(row, row + 1)
        close(model((data["inp"][at], data["tar"][at])), together[at])
    order = [1, 0]
    close(model((data["inp"][order], data["tar"][order])), tf.gather(together, order))


def test_a_sentence_of_nothing_but_padding_is_finite(model, data):
    inp = np.concatenate([data["inp"][:1], np.zeros((1, 5), np.int32)])
    tar = np.concatenate([data["tar"][:1], np.zeros((1, 3), np.int32)])
    with tf.GradientTape() as tape:
        logits = model((inp, tar))
    expected, _ = ref.transformer(trees.unflatten(data, "params"), inp, tar, N)
    close(logits, expected)
    gradients = tape.gradient(logits, [weight.value for weight in model.trainable_weights])
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients)


@pytest.mark.parametrize("share", [True, False])
def test_cached_logits_are_the_uncached_ones(share):
    model = Transformer(2, D, N, F, 19, 19, pe_input=8, pe_target=8, share_embeddings=share)
    inp = tf.constant([[3, 0, 7, 11, 5], [2, 9, 4, 0, 0]])
    tar = tf.constant([[1, 5, 12, 4], [1, 17, 3, 8]])  # no padding inside: a cache never has any
    whole = model((inp, tar))
    state = model.start(inp, 6)  # longer than the target: the rest stays empty
    for t in range(4):
        logits, state = model.step(tar[:, t], state)
        close(logits, whole[:, t])
    assert int(state["position"]) == 4


def test_decoding_hides_what_a_keras_mask_hides(model):
    inp, tar = tf.constant([[3, 8, 7, 11]]), tf.constant([[1, 5, 12]])
    plain = model((inp, tar))
    inp._keras_mask = tf.constant([[True, False, False, True]])
    whole = model((inp, tar))
    assert np.abs(whole - plain).max() > 0.01
    state = model.start(inp, 3)
    for t in range(3):
        logits, state = model.step(tar[:, t], state)
        close(logits, whole[:, t])


def test_more_steps_than_positions_are_refused_as_a_tensor_too(model):
    inp = tf.constant([[3, 8, 7, 11]])
    with pytest.raises(ValueError, match="max_length: expected at most 12 .pe_target.*got 13"):
        model.start(inp, 13)
    with pytest.raises(ValueError, match="max_length: expected at most 12 .pe_target.*got more"):
        model.start(inp, tf.constant(13))
    start = tf.function(lambda most: model.start(inp, most)["lineage"], autograph=False)
    assert start(tf.constant(12)).shape == (1, 1, 12)
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_length: expected at most 12"):
        start(tf.constant(13))


def test_weights_and_logits_come_from_one_path(model, data):
    inputs = data["inp"], data["tar"]
    close(model(inputs, return_attention_weights=True)[0], model(inputs), 1e-6)


def test_a_built_model_counts_its_parameters():
    def layer(attentions):
        norms = attentions + 1
        return attentions * 4 * (D * D + D) + 2 * D * F + F + D + norms * 2 * D

    model = Transformer(2, D, N, F, 13, 19, pe_input=8, pe_target=8)
    model.build()
    tables, projection = 13 * D + 19 * D, D * 19 + 19
    assert model.count_params() == 2 * layer(1) + 2 * layer(2) + tables + projection
