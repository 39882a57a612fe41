"""A small encoder, pretrained on English sentences in two ways or not at all, then probed.

It is then fine-tuned on few labels for two tasks made from other sentences: was this a question
(its last mark is gone), and were two neighboring words swapped.
"""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import WordPieceTokenizer, bert, load_corpus
from tf_transformer.data import mask_tokens, split_documents

LENGTH = 16  # tokens, with [CLS] and [SEP]
BATCH = 64
LABELS = (50, 500, 5000)


def sentences():
    """Distinct English sentences: to pretrain on, and others for the tasks."""
    texts = dict.fromkeys(side for name in ("en-zh", "en-fr") for side, _ in load_corpus(name))
    documents = [[text] for text in texts if text[-1] in ".?" and text.count(" ") > 1]
    return [[text for [text] in part] for part in split_documents(documents, 0.25)]


def matrix(tokenizer, texts):
    """Ids (texts, LENGTH), and which of the texts are short enough."""
    rows = tokenizer.encode(texts, add_special_tokens=True)
    fits = np.array([len(row) <= LENGTH for row in rows])
    rows = [row for row, fit in zip(rows, fits, strict=True) if fit]
    return keras.utils.pad_sequences(rows, LENGTH, padding="post"), fits


class Reader:
    """A small BERT that sees the whole text or only the past."""

    def __init__(self, vocab_size, past_only):
        sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
        config = bert.BertConfig(
            vocab_size, intermediate_size=256, max_position_embeddings=LENGTH, **sizes
        )
        self.model = bert.BertForMaskedLM(config)
        self.model.build()
        visible = tf.ones((LENGTH, LENGTH), tf.bool)
        self.visible = tf.linalg.band_part(visible, -1, 0) if past_only else visible

    def states(self, ids, training=False):
        """Those of the embeddings and of each layer, (B, T, D)."""
        mask = (ids != 0)[:, tf.newaxis] & self.visible
        inputs = {"input_ids": ids, "attention_mask": mask}
        outputs = self.model.bert(inputs, training=training, return_hidden_states=True)
        return outputs["hidden_states"]


def train(loss, variables, rows, steps, rate):
    """Minimize a function of batches, which are drawn from arrays."""
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=rate, warmup_steps=steps // 10
    )
    optimizer = keras.optimizers.Adam(schedule, clipnorm=1.0)
    optimizer.build(variables)

    @tf.function
    def step(*batch):
        with tf.GradientTape() as tape:
            value = loss(*batch)
        gradients = tape.gradient(value, [variable.value for variable in variables])
        pairs = zip(gradients, variables, strict=True)
        optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])

    data = tf.data.Dataset.from_tensor_slices(rows).shuffle(len(rows[0]), seed=1).repeat()
    for batch in data.batch(BATCH).take(steps):
        step(*batch)


def pretrain(reader, tokenizer, ids, kind, epochs):
    """Predict masked words, or the next word."""
    special = list(tokenizer.special_tokens.values())
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size, dtype="int32"), special)
    is_ordinary = np.isin(np.arange(tokenizer.vocab_size), ordinary)

    def loss(ids):
        positions, seen = None, ids
        labels = tf.concat([ids[:, 1:], tf.zeros_like(ids[:, :1])], 1)
        if kind == "masked words":
            seed = tf.random.uniform((2,), maxval=2**31 - 1, dtype=tf.int32)
            options = {"mask_id": tokenizer.mask_id, "random_ids": ordinary, "rate": 0.25}
            masked = mask_tokens(ids, tf.gather(is_ordinary, ids), seed, **options)
            positions, labels = masked.masked_lm_positions, masked.labels
            seen = masked.input_ids
        logits = reader.model.word_logits(reader.states(seen, True)[-1], positions)
        counted = tf.cast(labels != 0, tf.float32)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_sum(each * counted) / tf.reduce_sum(counted)

    variables = reader.model.trainable_variables
    train(loss, variables, (ids,), epochs * len(ids) // BATCH, 2e-3)


def questions(texts, rng):
    """Texts without their last mark, and which of them were questions: half."""
    ask, say = ([text for text in texts if text[-1] == mark] for mark in "?.")
    chosen = [*ask, *say[: len(ask)]]
    return [text[:-1] for text in chosen], [int(text[-1] == "?") for text in chosen]


def swapped(texts, rng):
    """Texts, and in which of them two neighboring words, drawn at random, have changed places."""
    found, labels = [], []
    for number, text in enumerate(texts):
        words = text[:-1].lower().split()
        place = rng.integers(len(words) - 1)
        if words[place] != words[place + 1]:
            if number % 2:
                words[place : place + 2] = words[place + 1], words[place]
            found.append(" ".join(words))
            labels.append(number % 2)
    return found, labels


def fine_tuned(reader, ids, labels, count, test=2000):
    """Accuracy on `test` texts after training on `count` others; the reader stays as it is."""
    before = reader.model.get_weights()
    keras.utils.set_random_seed(count)
    head = keras.layers.Dense(2)
    head.build((None, 64))

    def logits(ids, training):
        tokens = tf.cast(ids != 0, tf.float32)[..., tf.newaxis]
        states = reader.states(ids, training)[-1]
        return head(tf.reduce_sum(states * tokens, 1) / tf.reduce_sum(tokens, 1))

    def loss(ids, labels):
        found = logits(ids, True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, found))

    variables = reader.model.bert.trainable_variables + head.trainable_variables
    rows = ids[test : test + count], labels[test : test + count]
    train(loss, variables, rows, 300 if count <= 500 else 600, 1e-3)
    guesses = np.argmax(logits(tf.constant(ids[:test]), False), -1)
    reader.model.set_weights(before)
    return float(np.mean(guesses == labels[:test]))


def probed(states, ids, offset, words=100):
    """How often a linear map finds the word before or after from a state, among common ones."""
    common = np.argsort(np.bincount(ids.ravel())[5:])[::-1][:words] + 5
    place = {word: number for number, word in enumerate(common)}
    x, y = [], []
    for row, vectors in zip(ids, states, strict=True):
        for t in range(1, LENGTH - 1):
            if row[t] not in (0, 3) and row[t + offset] in place:
                x.append(vectors[t])
                y.append(place[row[t + offset]])
    x = np.concatenate([np.array(x, np.float64), np.ones((len(x), 1))], -1)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], np.array(y)[order]
    half = len(x) // 2
    weights = np.linalg.solve(
        x[:half].T @ x[:half] + np.eye(x.shape[1]), x[:half].T @ np.eye(words)[y[:half]]
    )
    return float(np.mean((x[half:] @ weights).argmax(-1) == y[half:]))


def trained(seed, kind, *, texts=None, epochs=5, labels=LABELS, test=2000):
    """Pretrain; accuracies of the probes by layer, and of both tasks by the number of labels.

    Args:
        seed: int.
        kind: "masked words", "next words" or "nothing".
        texts: None for all, or how many to pretrain on.
        epochs: int.
        labels: ints, how many labels to fine-tune on.
        test: int, how many texts to test on.
    """
    keras.utils.set_random_seed(seed)
    documents, others = sentences()
    tokenizer = WordPieceTokenizer.train(documents, 2000)
    reader = Reader(tokenizer.vocab_size, past_only=kind == "next words")
    if kind != "nothing":
        pretrain(reader, tokenizer, matrix(tokenizer, documents[:texts])[0], kind, epochs)

    ids, _ = matrix(tokenizer, others[:2000])
    states = [layer.numpy() for layer in reader.states(tf.constant(ids))]
    found = {
        f"{name}, layer {n}": probed(states[n], ids, offset)
        for name, offset in (("before", -1), ("after", 1))
        for n in range(1, len(states))
    }
    for task in (questions, swapped):
        rng = np.random.default_rng(seed)
        texts, truth = task([others[n] for n in rng.permutation(len(others))], rng)
        order = rng.permutation(len(texts))
        ids, fits = matrix(tokenizer, [texts[n] for n in order])
        truth = np.array(truth, "int32")[order][fits]
        for count in labels:
            if test + count > len(ids):  # there are not so many questions
                continue
            found[f"{task.__name__}, {count}"] = fine_tuned(reader, ids, truth, count, test)
    return found


VARIANTS = {kind: partial(trained, kind=kind) for kind in ("masked words", "next words", "nothing")}
