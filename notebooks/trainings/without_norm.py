"""BERT with and without its norms, at several depths and learning rates: masked words."""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import Architecture, BPETokenizer, FeedForward, LearnedPositions, load_corpus
from tf_transformer.data import mask_tokens
from tf_transformer.layers import LayerNorm
from tf_transformer.models.bert import BertConfig, BertForMaskedLM
from tf_transformer.training import WarmUpLinearDecay
from trainings.translator import LONGEST

RATES = (0.0003, 0.001, 0.003)
WIDTH, BATCH = 64, 64


@keras.saving.register_keras_serializable("trainings")
class NoNorm(keras.layers.Layer):
    """A norm that does nothing."""

    def call(self, inputs, training=None, tokens=None):
        return inputs


def sentences(vocabulary=1000):
    """English sentences as ids (count, 12), 0 = padding, and the size of the vocabulary."""
    texts = sorted({source for source, _ in load_corpus("en-zh")})
    np.random.default_rng(0).shuffle(texts)
    tokenizer = BPETokenizer.train(texts, vocab_size=vocabulary)
    rows = [row for row in tokenizer.encode(texts) if 5 <= len(row) <= LONGEST]
    return keras.utils.pad_sequences(rows, LONGEST, padding="post"), tokenizer.vocab_size


def bert(depth, norm, vocabulary):
    """A small BERT; [MASK] is the last of its ids."""
    config = BertConfig(
        vocabulary + 1,
        WIDTH,
        depth,
        4,
        4 * WIDTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=LONGEST,
        initializer_range=0.07,  # the gain that 0.02 has at BERT's width of 768
        pooler_activation=None,
    )
    architecture = Architecture(LearnedPositions(LONGEST), norm, feed_forward=FeedForward("gelu"))
    model = BertForMaskedLM(config, architecture=architecture)
    if isinstance(norm, NoNorm):
        model.predictions.norm = norm
    model.build()
    return model


def masked_words(seed, depth, norm, steps=500):
    """The loss on new sentences for each learning rate, in nats a word; of bare frequencies too."""
    rows, vocabulary = sentences()
    held_out, rows = rows[:1000], rows[1000:]
    counts = np.bincount(rows.ravel(), minlength=vocabulary)[1:] + 1
    logs = np.log(counts / counts.sum())
    words = held_out[held_out != 0] - 1

    def masked(ids, number):
        return mask_tokens(
            ids, ids != 0, (seed, number), mask_id=vocabulary, random_ids=tf.range(1, vocabulary)
        )

    def loss_of(model, ids, number, training):
        new = masked(ids, number)
        inputs = {
            "input_ids": new.input_ids,
            "attention_mask": tf.cast(ids != 0, tf.int32),
            "masked_lm_positions": new.masked_lm_positions,
        }
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(
            new.labels, model(inputs, training=training)
        )
        return tf.reduce_sum(each * new.weights) / tf.reduce_sum(new.weights)

    found = {"frequencies": float(-np.mean(logs[words]))}
    for rate in RATES:
        keras.utils.set_random_seed(seed)
        model = bert(depth, norm, vocabulary)
        optimizer = keras.optimizers.Adam(
            WarmUpLinearDecay(rate, steps // 10, steps), global_clipnorm=1.0
        )
        optimizer.build(model.trainable_variables)

        @tf.function
        def step(ids, number, model=model, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = loss_of(model, ids, number, True)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        rng = np.random.default_rng(seed)
        for number in range(steps):
            ids = tf.constant(rows[rng.integers(0, len(rows), BATCH)])
            if not np.isfinite(step(ids, tf.constant(number))):
                break
        loss = float(loss_of(model, tf.constant(held_out), tf.constant(-1), False))
        # JSON has no NaN.
        found[f"loss_{rate:g}"] = min(loss, 99.0) if np.isfinite(loss) else 99.0
    return found


NORMS = {"norm": LayerNorm(), "no norm": NoNorm()}
VARIANTS = {
    f"{name}, {depth} layers": partial(masked_words, depth=depth, norm=norm)
    for depth in (2, 12)
    for name, norm in NORMS.items()
}
