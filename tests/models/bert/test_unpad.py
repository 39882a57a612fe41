"""`unpad=True` computes only tokens and changes nothing else."""

import numpy as np
import pytest
import tensorflow as tf
from loading import close
from random_bert import HEADS, batch, built, tokens_only, twin

from tf_transformer import bert

pytestmark = pytest.mark.one_of(10, "bert")


@pytest.mark.parametrize("cls", [bert.Bert, *HEADS, bert.SentenceEncoder], ids=lambda c: c.__name__)
@pytest.mark.one_of(10)
def test_gives_the_same_of_tokens(cls):
    model, inputs = built(cls), batch(3, 7)
    keep = inputs["attention_mask"]
    keep[:, 0] = 1
    outputs = (tf.nest.flatten(m(inputs)) for m in (model, twin(model, unpad=True)))
    for one, other in zip(*outputs, strict=True):
        if one.shape[:2] == keep.shape:
            one, other = tokens_only(one, keep), tokens_only(other, keep)
        close(one, other)


def test_says_0_of_padding():
    model, inputs = twin(built(), unpad=True), batch()
    outputs = model(inputs, return_hidden_states=True)
    for states in outputs["hidden_states"]:
        assert (np.asarray(states)[inputs["attention_mask"] == 0] == 0).all()


@pytest.mark.parametrize("size", [0, 2])
def test_a_batch_without_a_token(size):
    inputs = {key: np.zeros((size, 5), np.int32) for key in batch()}
    outputs = twin(built(), unpad=True)(inputs)
    assert outputs["sequence_output"].shape == (size, 5, 14)
    assert (np.asarray(outputs["sequence_output"]) == 0).all()
    assert np.isfinite(outputs["pooled_output"]).all()


def test_attention_is_that_of_tokens():
    model, inputs = built(), batch()
    keep = inputs["attention_mask"]
    one, other = (
        m(inputs, return_attentions=True)["attentions"][-1]
        for m in (model, twin(model, unpad=True))
    )
    one, other = (tokens_only(np.moveaxis(x, 1, 2), keep) for x in (one, other))
    close(one, other)


def test_gradients_are_the_same():
    model = built(bert.BertForSequenceClassification)
    inputs, upstream = batch(3, 7), np.random.default_rng(1).standard_normal((3, 5))
    inputs["attention_mask"][:, 0] = 1
    gradients = []
    for one in (model, twin(model, unpad=True)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(one(inputs) * upstream)
        values = [weight.value for weight in one.trainable_weights]
        gradients.append([tf.convert_to_tensor(g) for g in tape.gradient(loss, values)])
    largest = max(np.abs(g).max() for g in gradients[0])
    for one, other in zip(*gradients, strict=True):  # the key bias's is 0 up to rounding
        np.testing.assert_allclose(one, other, atol=1e-5 * largest)


def test_keras_does_not_compile_it():
    assert built().supports_jit and not built(unpad=True).supports_jit
