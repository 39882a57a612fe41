"""Keras's own masks: used when Keras passes them in, never propagated.

If a mask leaks out of a layer, `fit` silently weights the loss by it.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from loading import close

from tf_transformer import DecoderLayer, Encoder, EncoderLayer, TokenEmbedding
from tf_transformer.layers import MultiHeadAttention

N, D, F = 7, 14, 11
IDS = np.array([[5, 0, 6, 7], [7, 8, 0, 0]], np.int32)


@pytest.fixture
def embedded():
    """A tensor that carries a Keras mask, True = keep."""
    x = keras.layers.Embedding(11, D, mask_zero=True)(IDS)
    assert x._keras_mask.dtype == tf.bool
    return x


def test_an_encoder_layer_obeys_the_mask_of_an_embedding(embedded):
    layer = EncoderLayer(D, N, F)
    out = layer(embedded)
    plain = tf.convert_to_tensor(embedded.numpy())
    close(out, layer(plain, mask=tf.constant(IDS != 0)), 1e-6)
    padding = tf.cast(IDS == 0, tf.float32)[:, None, None]
    close(out, layer(plain, mask=padding), 1e-6)
    assert not np.allclose(out, layer(plain))


def test_a_mask_that_is_given_goes_before_the_mask_of_keras(embedded):
    layer = EncoderLayer(D, N, F)
    everything = tf.zeros((4, 4))
    plain = tf.convert_to_tensor(embedded.numpy())
    close(layer(embedded, mask=everything), layer(plain), 1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: EncoderLayer(D, N, F)(x),
        lambda x: DecoderLayer(D, N, F)(x, x),
        lambda x: MultiHeadAttention(D, N)(x, x, x),
        lambda x: Encoder(1, D, N, F, 11, 8)(IDS),
        lambda x: TokenEmbedding(11, D, 8)(IDS),
    ],
    ids=["EncoderLayer", "DecoderLayer", "MultiHeadAttention", "Encoder", "TokenEmbedding"],
)
def test_no_mask_leaves_a_layer(call, embedded):
    outputs = [t for t in tf.nest.flatten(call(embedded)) if t is not None]
    assert outputs and all(getattr(t, "_keras_mask", None) is None for t in outputs)


def test_no_mask_leaves_a_symbolic_layer_and_fit_does_not_weight_the_loss():
    tokens = keras.Input((4,), dtype="int32")
    x = EncoderLayer(D, N, F, rate=0.0)(keras.layers.Embedding(11, D, mask_zero=True)(tokens))
    assert getattr(x, "_keras_mask", None) is None
    model = keras.Model(tokens, keras.layers.Dense(1)(x))
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    target = np.ones((2, 4, 1), np.float32)
    expected = np.mean((model(IDS) - target) ** 2)
    assert np.isclose(model.evaluate(IDS, target, verbose=0), expected, rtol=1e-5)
    history = model.fit(IDS, target, epochs=1, verbose=0)
    assert np.isclose(history.history["loss"][0], expected, rtol=1e-5)
