"""Remembering one token over a distance: convolutions, recurrent networks and attention.

A text of 65 tokens has one of 8 marked tokens, `distance` tokens before the last one; all others
are drawn from 8 unmarked ones. What was the marked token? is asked at the last token. Recurrent
networks and attention have several learning rates at each distance.
"""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import Encoder
from trainings.translator import at_rates

LENGTH, SYMBOLS, WIDTH = 65, 8, 32


def texts(rng, count, distance):
    """ids (count, 65) from 1 to 16, and the marked tokens, from 0 to 7."""
    ids = rng.integers(1 + SYMBOLS, 1 + 2 * SYMBOLS, (count, LENGTH))
    marked = rng.integers(0, SYMBOLS, count)
    ids[:, -1 - distance] = 1 + marked
    return ids.astype("int32"), marked.astype("int32")


def convolutions(layers):
    """Causal convolutions with kernels of 3."""
    return [
        keras.layers.Conv1D(WIDTH, 3, padding="causal", activation="relu") for _ in range(layers)
    ]


def recurrent(kind, **options):
    """One recurrent layer."""
    return [kind(WIDTH, return_sequences=True, **options)]


def open_forget_gate(shape, dtype=None):
    """Biases of an LSTM: input gate, forget gate, cell, output gate."""
    return tf.cast(tf.repeat([0.0, 5.0, 0.0, 0.0], shape[0] // 4), dtype or "float32")


def attention():
    """A layer of the encoder."""
    return [Encoder(1, WIDTH, 1, 2 * WIDTH, 1 + 2 * SYMBOLS, LENGTH, rate=0.0)]


def network(layers):
    """Logits of the marked token, from the layers' output at the last token."""
    if not isinstance(layers[0], Encoder):
        layers = [keras.layers.Embedding(1 + 2 * SYMBOLS, WIDTH), *layers]
    last = keras.layers.Lambda(lambda x: x[:, -1])
    return keras.Sequential([*layers, last, keras.layers.Dense(SYMBOLS)])


def copied(seed, rate, layers, distance, batches=600):
    """Train; the loss and the share of marked tokens that are found, in new texts."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    model = network(layers())
    model.compile(
        keras.optimizers.Adam(rate, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(*texts(rng, 64 * batches, distance), batch_size=64, verbose=0)
    loss, found = model.evaluate(*texts(rng, 1000, distance), verbose=0)
    return {"loss": loss, "found": found}


SIMPLE, LSTM = keras.layers.SimpleRNN, keras.layers.LSTM
RECURRENT = {
    "RNN": partial(recurrent, SIMPLE, recurrent_initializer="glorot_uniform"),
    "orthogonal RNN": partial(recurrent, SIMPLE),
    "GRU": partial(recurrent, keras.layers.GRU),
    "LSTM": partial(recurrent, LSTM),
    "LSTM, open": partial(
        recurrent, LSTM, bias_initializer=open_forget_gate, unit_forget_bias=False
    ),
}
RATES = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
# A convolution sees the marked token at the first distance and not at the second, at any rate.
VARIANTS = {
    f"CNN, {n} layers at {distance}": partial(
        copied, rate=0.003, layers=partial(convolutions, n), distance=distance
    )
    for n, distances in ((1, (2, 4)), (2, (4, 8)), (6, (12, 16)))
    for distance in distances
} | at_rates(
    {
        f"{name} at {distance}": (partial(copied, layers=layers, distance=distance), RATES)
        for name, layers in {**RECURRENT, "attention": attention}.items()
        for distance in (8, 32, 64)
    }
)
