"""A small translator, trained in a minute or two, of which one thing can be changed.

English to Chinese, pairs of at most 12 tokens of either side; the sizes are half of those of the
small preset.
"""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import (
    BPETokenizer,
    InverseSquareRootSchedule,
    SmoothedCrossentropy,
    Transformer,
    load_corpus,
    split_pairs,
)
from tf_transformer.data import BucketedBatches, group_references
from tf_transformer.training import score_translations

LONGEST = 12


def corpus(pairs=None, vocabulary=4000):
    """Short pairs of ids for training and validation, texts to score, and their tokenizer."""
    split = split_pairs(load_corpus("en-zh"), test_share=0.04, validation_share=0.09)
    train = split.train[:pairs]
    texts = [text for pair in train for text in pair]
    tokenizer = BPETokenizer.train(texts, vocab_size=vocabulary)
    return tokenizer, short(tokenizer, train), short(tokenizer, split.validation)


def short(tokenizer, pairs):
    """The pairs that are short enough."""
    sources, targets = (tokenizer.encode(list(side)) for side in zip(*pairs, strict=True))
    fits = [max(len(s), len(t)) < LONGEST for s, t in zip(sources, targets, strict=True)]
    return [pair for pair, fit in zip(pairs, fits, strict=True) if fit]


def batches(tokenizer, pairs, tokens_per_batch=1024):
    """Batches of (source, shifted target), target."""
    sources, targets = (tokenizer.encode(list(side)) for side in zip(*pairs, strict=True))
    return BucketedBatches(
        sources,
        targets,
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        lengths=(8, LONGEST),
        tokens_per_batch=tokens_per_batch,
    )


def loss(model, tokenizer, pairs):
    """Nats per token, with the right tokens before it."""
    total = count = 0
    for inputs, labels in batches(tokenizer, pairs).epoch(0):
        logits = model(tuple(map(tf.constant, inputs)), training=False)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        total += float(tf.reduce_sum(tf.where(labels != 0, each, 0.0)))
        count += np.count_nonzero(labels)
    return total / count


class Course(keras.callbacks.Callback):
    """Records the loss of validation after every so many steps."""

    def __init__(self, every, tokenizer, pairs):
        super().__init__()
        self.every, self.tokenizer, self.pairs = every, tokenizer, pairs
        self.steps, self.losses = [], []
        self.count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if self.count % self.every == 0:
            self.steps.append(self.count)
            self.losses.append(loss(self.model, self.tokenizer, self.pairs))


def translations(model, tokenizer, texts, longest=2 * LONGEST):
    """Greedy translations, without a cache: whatever was changed in the model counts."""
    rows = [[*row, tokenizer.end_id] for row in tokenizer.encode(texts)]
    sources = tf.constant(keras.utils.pad_sequences(rows, padding="post"))
    # All of the buffer is fed at once, so that one program serves every step.
    logits = tf.function(lambda targets: model((sources, targets), training=False))
    found = np.full((len(texts), longest + 1), tokenizer.start_id, "int32")
    for step in range(longest):
        found[:, step + 1] = np.argmax(logits(tf.constant(found))[:, step, 1:], axis=-1) + 1
    ended = [[*row[1:].tolist(), tokenizer.end_id] for row in found]
    return tokenizer.decode([row[: row.index(tokenizer.end_id)] for row in ended])


def bleu(model, tokenizer, pairs):
    """BLEU of greedy translations of the first 400 sources."""
    sources, references = (part[:400] for part in group_references(pairs))
    return score_translations(translations(model, tokenizer, sources), references, "zh")["bleu"]


def adam(d_model, rate=1.0):
    """The paper's optimizer; `rate` multiplies the learning rate."""
    return keras.optimizers.Adam(
        InverseSquareRootSchedule(d_model, warmup_steps=400, scale=rate),
        beta_2=0.98,
        epsilon=1e-9,
        use_ema=True,  # `fit` ends with the average
        ema_momentum=0.99,
    )


def fit(model, data, epochs, d_model, rate=1.0, callbacks=()):
    """Train a model on batches."""
    model.compile(adam(d_model, rate), SmoothedCrossentropy(0.1), jit_compile=False)
    model.fit(
        data.dataset(),
        steps_per_epoch=data.steps_per_epoch,
        epochs=epochs,
        shuffle=False,
        callbacks=list(callbacks),
        verbose=0,
    )


def trained(
    seed,
    *,
    pairs=None,
    epochs=6,
    layers=2,
    d_model=64,
    num_heads=4,
    dff=256,
    rate=1.0,
    vocabulary=4000,
    tokens_per_batch=1024,
    change=None,
    watch=None,
    also=None,
    course=None,
    **options,
):
    """Train; the losses of training and validation in nats a token, BLEU, and the weights.

    Args:
        seed: int.
        pairs: None for all, or how many of them to train on.
        epochs, layers, d_model, num_heads, dff: ints.
        rate: float, multiplies the learning rate.
        vocabulary, tokens_per_batch: ints.
        change: None, or a function that gets the new model and changes it.
        watch: None, or a function of the model, the tokenizer and the validation pairs that is
            called before every epoch and at the end.
        also: None, or a function of (model, tokenizer, pairs) that returns more measurements.
        course: None, or int: also the losses of 500 pairs after every so many steps.
        options: further arguments of `Transformer`.
    """
    keras.utils.set_random_seed(seed)
    tokenizer, train, validation = corpus(pairs, vocabulary)
    model = Transformer(
        layers,
        d_model,
        num_heads,
        dff,
        tokenizer.vocab_size,
        tokenizer.vocab_size,
        pe_input=96,
        pe_target=96,
        **{"share_embeddings": True, **options},
    )
    if change is not None:
        change(model)
    progress = [] if course is None else [Course(course, tokenizer, validation[:500])]
    callbacks = [*progress]
    if watch is not None:
        look = lambda *_: watch(model, tokenizer, validation)  # noqa: E731
        callbacks.append(keras.callbacks.LambdaCallback(on_epoch_begin=look, on_train_end=look))
    fit(model, batches(tokenizer, train, tokens_per_batch), epochs, d_model, rate, callbacks)
    found = {
        "loss": loss(model, tokenizer, validation),
        "train_loss": loss(model, tokenizer, train[:2000]),
        "bleu": bleu(model, tokenizer, validation),
        "weights": model.count_params(),
    }
    for recorded in progress:
        found |= {"course_steps": recorded.steps, "course_losses": recorded.losses}
    return found if also is None else found | also(model, tokenizer, validation)


def at_rates(arms):
    """Arms, each a function of a seed and a rate and the rates to try: variants, a rate each.

    `train.py` trains all of them with the first seed, and the best of every arm with the others.
    """
    return {
        f"{arm}, rate {rate:g}": partial(train, rate=rate)
        for arm, (train, rates) in arms.items()
        for rate in rates
    }
