"""Which sentence means the same: towers of real and of complex numbers with as many word weights.

A pair are two English sentences with one Chinese or French translation in common.
"""

import itertools
from collections import defaultdict
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import (
    ComplexEmbedding,
    ComplexEncoder,
    Encoder,
    WordPieceTokenizer,
    create_padding_mask,
    load_corpus,
    split_pairs,
)
from tf_transformer.functional.attention.complex_attention import to_real

LENGTH = 16  # tokens
CANDIDATES = 1000


def paraphrases():
    """Pairs of English sentences that share a translation, at most three of each translation."""
    by_translation = defaultdict(dict)
    for name in ("en-zh", "en-fr"):
        for source, target in load_corpus(name):
            by_translation[target][source] = None
    pairs = [
        pair for texts in by_translation.values() for pair in itertools.combinations(list(texts)[:3], 2)
    ]  # fmt: skip
    split = split_pairs(list(dict.fromkeys(pairs)), test_share=0.0, validation_share=0.25)
    return split.train, split.validation


class Words(keras.layers.Layer):
    """The mean of the words' vectors."""

    def __init__(self, vocab_size, width):
        super().__init__()
        self.embedding = keras.layers.Embedding(vocab_size, width)

    def call(self, ids, training=None):
        return mean(self.embedding(ids), ids)


class Encoded(keras.layers.Layer):
    """The mean of the states of an encoder of one layer, real or complex."""

    def __init__(self, vocab_size, width, is_complex):
        super().__init__()
        sizes = (1, width, 2, 2 * width, vocab_size)
        schemes = {"frequencies": "word-sharing", "phases": "own"}
        self.encoder = ComplexEncoder(*sizes, **schemes) if is_complex else Encoder(*sizes, LENGTH)

    def call(self, ids, training=None):
        states = self.encoder(ids, training, create_padding_mask(ids))
        return mean(to_real(states) if states.dtype.is_complex else states, ids)


class Measured(keras.layers.Layer):
    """Words are states of length 1, three neighbors a mixture, and a text what measurements find.

    Li et al. 2019, "CNM: An Interpretable Complex-valued Network for Matching": the probability of
    the outcome v for the mixture of the states w with weights p is the sum of p |<v, w>|²; of all
    places in a text the largest counts.
    """

    def __init__(self, vocab_size, width, is_complex, outcomes=64):
        super().__init__()
        phases = "own" if is_complex else "zero"
        options = {"frequencies": "zero", "phases": phases}
        self.embedding = ComplexEmbedding(vocab_size, width, **options)
        self.importance = keras.layers.Embedding(vocab_size, 1)
        parts = 2 if is_complex else 1
        self.outcomes = self.add_weight(shape=(parts, width, outcomes), initializer="normal")

    def call(self, ids, training=None):
        words = self.embedding(ids)
        real, imag = (part / norm(words) for part in (tf.math.real(words), tf.math.imag(words)))
        v = tf.unstack(self.outcomes / tf.norm(self.outcomes, axis=(0, 1), keepdims=True))
        products = [real @ v[0], imag @ v[0]]
        if len(v) == 2:  # with the conjugate of v
            products = [products[0] + imag @ v[1], products[1] - real @ v[1]]
        chances = products[0] ** 2 + products[1] ** 2  # (B, T, outcomes)
        weights = tf.exp(self.importance(ids)) * tf.cast(ids != 0, tf.float32)[..., tf.newaxis]
        three = partial(tf.nn.avg_pool1d, ksize=3, strides=1, padding="SAME")
        mixed = three(chances * weights) / (three(weights) + 1e-9)
        return tf.reduce_max(mixed, 1)


def norm(words):
    """The lengths of complex vectors, (..., 1)."""
    return tf.sqrt(tf.reduce_sum(tf.abs(words) ** 2, -1, keepdims=True) + 1e-9)


def mean(states, ids):
    """Over tokens that are not padding."""
    tokens = tf.cast(ids != 0, tf.float32)[..., tf.newaxis]
    return tf.reduce_sum(states * tokens, 1) / tf.reduce_sum(tokens, 1)


TOWERS = {
    "words, real": partial(Words, width=64),
    "encoder, real": partial(Encoded, width=64, is_complex=False),
    "encoder, complex": partial(Encoded, width=32, is_complex=True),
    "measured, real": partial(Measured, width=64, is_complex=False),
    "measured, complex": partial(Measured, width=32, is_complex=True),
}


def recall(tower, left, right):
    """How often a sentence's own partner is the nearest of CANDIDATES."""
    found = []
    for first in range(0, len(left) - CANDIDATES + 1, CANDIDATES):
        part = slice(first, first + CANDIDATES)
        x, y = (tf.nn.l2_normalize(tower(tf.constant(ids[part])), -1) for ids in (left, right))
        found.append(np.argmax(x @ tf.transpose(y), -1) == np.arange(CANDIDATES))
    return float(np.mean(found))


def trained(seed, name, *, pairs=None, epochs=15, batch=128):
    """Train; how often the partner is found, also without phases, and the weights.

    Args:
        seed: int.
        name: of TOWERS.
        pairs: None for all, or how many of them to train on.
        epochs, batch: ints.
    """
    keras.utils.set_random_seed(seed)
    train, held_out = paraphrases()
    held_out = list({left: (left, right) for left, right in held_out}.values())
    for part in (train, held_out):
        np.random.default_rng(0).shuffle(part)  # near-copies stand together
    train = train[:pairs]
    tokenizer = WordPieceTokenizer.train([text for pair in train for text in pair], 3000)
    left, right, held_left, held_right = (
        keras.utils.pad_sequences(
            tokenizer.encode(list(side)), LENGTH, padding="post", truncating="post"
        )
        for part in (train, held_out)
        for side in zip(*part, strict=True)
    )
    tower = TOWERS[name](tokenizer.vocab_size)
    tower(tf.constant(left[:2]))
    log_scale = keras.Variable(3.0)
    optimizer = keras.optimizers.Adam(2e-3)
    variables = [*tower.trainable_variables, log_scale]
    optimizer.build(variables)

    @tf.function
    def step(left, right):
        with tf.GradientTape() as tape:
            x, y = (tf.nn.l2_normalize(tower(ids, training=True), -1) for ids in (left, right))
            logits = tf.exp(log_scale.value) * x @ tf.transpose(y)
            own = tf.range(tf.shape(left)[0])
            loss = sum(
                tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(own, rows))
                for rows in (logits, tf.transpose(logits))
            )
        pulls = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply_gradients(zip(pulls, variables, strict=True))

    data = tf.data.Dataset.from_tensor_slices((left, right)).shuffle(len(left), seed=seed)
    for rows in data.batch(batch, drop_remainder=True).repeat(epochs):
        step(*rows)
    found = {
        "recall": recall(tower, held_left, held_right),
        "train_recall": recall(tower, left[:2000], right[:2000]),
        "weights": tower.count_params(),
        "pairs": len(left),
        "held_out": len(held_left),
    }
    for weight in tower.weights:
        if weight.name == "phase":
            weight.assign(tf.zeros_like(weight))
            found["recall_without_phases"] = recall(tower, held_left, held_right)
    return found


VARIANTS = {name: partial(trained, name=name) for name in TOWERS}
