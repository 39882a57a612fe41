"""Remembering one token over a distance: convolutions, recurrent networks and attention.

A text of 65 tokens has one of 8 marked tokens, `distance` tokens before the last one; all others
are drawn from 8 unmarked ones. What was the marked token? is asked at the last token.
"""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import Encoder

LENGTH, SYMBOLS, WIDTH = 65, 8, 32
DISTANCES = (1, 2, 4, 8, 12, 16, 32, 64)


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


def network(layers):
    """Logits of the marked token, from the layers' output at the last token."""
    layers = layers()
    if not isinstance(layers[0], Encoder):
        layers = [keras.layers.Embedding(1 + 2 * SYMBOLS, WIDTH), *layers]
    last = keras.layers.Lambda(lambda x: x[:, -1])
    return keras.Sequential([*layers, last, keras.layers.Dense(SYMBOLS)])


def copied(seed, layers, batches=300, distances=DISTANCES):
    """The share of marked tokens found in new texts, by distance; a training for each."""
    found = {}
    for distance in distances:
        keras.utils.set_random_seed(seed)
        rng = np.random.default_rng(seed)
        model = network(layers)
        model.compile(
            keras.optimizers.Adam(0.003, clipnorm=1.0),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(*texts(rng, 64 * batches, distance), batch_size=64, verbose=0)
        ids, marked = texts(rng, 1000, distance)
        found[str(distance)] = float(np.mean(np.argmax(model(tf.constant(ids)), -1) == marked))
    return found


LAYERS = {
    **{f"CNN, {n} layers": partial(convolutions, n) for n in (1, 2, 6)},
    "RNN": lambda: [keras.layers.SimpleRNN(WIDTH, return_sequences=True)],
    "GRU": lambda: [keras.layers.GRU(WIDTH, return_sequences=True)],
    "LSTM": lambda: [keras.layers.LSTM(WIDTH, return_sequences=True)],
    "attention": lambda: [Encoder(1, WIDTH, 1, 2 * WIDTH, 1 + 2 * SYMBOLS, LENGTH, rate=0.0)],
}
VARIANTS = {name: partial(copied, layers=layers) for name, layers in LAYERS.items()}
