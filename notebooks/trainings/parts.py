"""Small translators of which one part is changed: activation, norm, positions."""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import Architecture, FeedForward, LearnedPositions
from tf_transformer.layers.feed_forwards import FlatDense
from trainings.translator import batches, trained


class DrawnDense(FlatDense):
    """x m with m ~ Bernoulli(Phi(x)) in training, and the mean of it, GELU, outside."""

    def call(self, inputs, training=None):
        x = super().call(inputs)
        phi = 0.5 * (1 + tf.math.erf(x / 2**0.5))
        if training:
            phi = tf.cast(tf.random.uniform(tf.shape(phi)) < phi, x.dtype)
        return x * phi


class DrawnFeedForward(FeedForward):
    """The network of the paper with `DrawnDense`."""

    def network(self, d_model, dff, dtype=None, name="ffn"):
        layers = [DrawnDense(dff, dtype=dtype), FlatDense(d_model, dtype=dtype)]
        return keras.Sequential(layers, name=name)


def hidden_layers(model):
    """The first dense layers of all feed-forward networks."""
    return [layer.ffn.layers[0] for layer in (*model.encoder.enc_layers, *model.decoder.dec_layers)]


def zeros(model, tokenizer, pairs):
    """Of each unit of the feed-forward networks the share of tokens on which it is 0, (units,)."""
    tokens = rows = 0
    found = []

    def seen(x):
        out = tf.nn.relu(x)
        found.append(tf.reshape(tf.cast(out == 0, tf.float32), (-1, x.shape[-1])))
        return out

    layers = hidden_layers(model)
    kept = [layer.activation for layer in layers]
    for layer in layers:
        layer.activation = seen
    half = len(layers) // 2
    for (source, target), _ in batches(tokenizer, pairs).epoch(0):
        found.clear()
        model((tf.constant(source), tf.constant(target)), training=False)
        sides = [tf.reshape(tf.cast(side != 0, tf.float32), (-1, 1)) for side in (source, target)]
        side_of = [sides[0]] * half + [sides[1]] * half
        tokens = tokens + np.array([tf.reduce_sum(side) for side in side_of])
        rows = rows + np.array(
            [tf.reduce_sum(x * side, 0) for x, side in zip(found, side_of, strict=True)]
        )
    for layer, activation in zip(layers, kept, strict=True):
        layer.activation = activation
    return (rows / tokens[:, None]).ravel()


def watched(seed):
    """Train, and count units that are 0 on all tokens of validation, before every epoch."""
    history = []

    def watch(model, tokenizer, pairs):
        history.append(zeros(model, tokenizer, pairs))

    results = trained(seed, watch=watch)
    dead = np.array(history) == 1  # (epochs + 1, units)
    return {
        **results,
        "units": dead.shape[1],
        **{f"dead_{epoch}": int(row.sum()) for epoch, row in enumerate(dead)},
        "ever_dead": int(dead.any(0).sum()),
        "revived": int((dead.any(0) & ~dead[-1]).sum()),
        "died": int((dead[-1] & ~dead[0]).sum()),
        "zeros": float(history[-1].mean()),
    }


def with_part(seed, pairs=None, epochs=6, **part):
    """Train with one part of the architecture changed."""
    return trained(seed, pairs=pairs, epochs=epochs, architecture=Architecture(**part))


VARIANTS = {
    "the paper's": watched,
    "GELU": partial(with_part, feed_forward=FeedForward("gelu")),
    "drawn": partial(with_part, feed_forward=DrawnFeedForward()),
    "1,000 pairs, sinusoid": partial(with_part, pairs=1000, epochs=60),
    "1,000 pairs, learned": partial(
        with_part, pairs=1000, epochs=60, positions=LearnedPositions(96)
    ),
}
