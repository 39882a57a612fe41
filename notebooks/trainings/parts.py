"""Small translators of which one part is changed: activation, norm, positions."""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import (
    Architecture,
    BatchNorm,
    FeedForward,
    LearnedPositions,
)
from tf_transformer.layers.flat_dense import FlatDense
from trainings.translator import batches, trained

LONGEST_DECODED = 40


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


class PositionBatchNorm(keras.layers.Layer):
    """Batch norm with statistics of each position, over the sentences that reach it."""

    def build(self, shape):
        options = {"shape": (LONGEST_DECODED, shape[-1]), "trainable": False}
        self.mean = self.add_weight(name="mean", initializer="zeros", **options)
        self.variance = self.add_weight(name="variance", initializer="ones", **options)
        self.gamma = self.add_weight(name="gamma", shape=(shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(shape[-1],), initializer="zeros")

    def call(self, inputs, training=None, tokens=None):
        length = tf.shape(inputs)[1]
        mean, variance = self.mean[:length], self.variance[:length]
        if training:
            counted = tf.cast(tokens, inputs.dtype)[..., None]  # (B, T, 1)
            count = tf.reduce_sum(counted, 0)  # (T, 1)
            new_mean = tf.math.divide_no_nan(tf.reduce_sum(inputs * counted, 0), count)
            squares = tf.reduce_sum((inputs - new_mean) ** 2 * counted, 0)
            new_variance = tf.math.divide_no_nan(squares, count)
            reached = count > 0
            for kept, old, new in (
                (self.mean, mean, new_mean),
                (self.variance, variance, new_variance),
            ):
                moved = tf.where(reached, 0.99 * old + 0.01 * new, old)
                kept.assign(tf.concat([moved, kept[length:]], 0))
            mean, variance = new_mean, new_variance
        return (inputs - mean) * tf.math.rsqrt(variance + 1e-3) * self.gamma + self.beta


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


def watched(seed, change=None, **options):
    """Train, and count units that are 0 on all tokens of validation, before every epoch."""
    history = []

    def watch(model, tokenizer, pairs):
        history.append(zeros(model, tokenizer, pairs))

    results = trained(seed, change=change, watch=watch, **options)
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


def a_quarter_dead(model, bias):
    """Give a quarter of the units of every feed-forward network a low bias."""

    def low(shape, dtype=None):
        return tf.where(tf.range(shape[0]) < shape[0] // 4, tf.constant(bias, dtype), 0.0)

    for layer in hidden_layers(model):
        layer.bias_initializer = low


def with_part(seed, pairs=None, epochs=6, **part):
    """Train with one part of the architecture changed."""
    return trained(seed, pairs=pairs, epochs=epochs, architecture=Architecture(**part))


LEARNED = {"positions": LearnedPositions(96)}
VARIANTS = {
    "the paper's": watched,
    "a quarter of biases -3": partial(watched, change=partial(a_quarter_dead, bias=-3.0)),
    "GELU": partial(with_part, feed_forward=FeedForward("gelu")),
    "drawn": partial(with_part, feed_forward=DrawnFeedForward()),
    "batch norm": partial(with_part, norm=BatchNorm()),
    "batch norm of each position": partial(with_part, norm=PositionBatchNorm()),
    "learned positions": partial(with_part, **LEARNED),
    **{
        f"{pairs:,} pairs, {name}": partial(with_part, pairs=pairs, epochs=epochs, **part)
        for pairs, epochs in ((1000, 60), (5000, 20))
        for name, part in (("sinusoid", {}), ("learned", LEARNED))
    },
}
