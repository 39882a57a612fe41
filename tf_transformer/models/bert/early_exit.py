"""Runs only as many layers as each text of a batch needs.

Axes: B batch, A texts that are left, T length, D hidden size, L layers, C classes.
"""

from numbers import Integral, Real
from typing import NamedTuple

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.tracing import in_xla_program


class _Progress(NamedTuple):
    """What the next layer needs, and the answers so far."""

    x: tf.Tensor  # float (A, T, D)
    mask: tf.Tensor  # bool (A, T)
    places: tf.Tensor  # int32 (A,), the rows of the batch
    guess: tf.Tensor  # int32 (A,), the class after the last layer
    streak: tf.Tensor  # int32 (A,), how many layers before it had the same
    logits: tf.Tensor  # float32 (B, C)
    layers: tf.Tensor  # int32 (B,), 0 = no answer yet


def early_exit(model, inputs, patience=None, entropy=0.0):
    """Classify texts with no more layers than each needs; see `BertWithExits.exit_early`."""
    last = model.config.num_hidden_layers - 1
    patience, entropy = check_thresholds(model, patience, entropy)
    if not model.built:
        model.build()
    bert = model.bert
    x, mask = bert.embed(inputs, False)
    x, rows = bert.encoder.widened(x), tf.shape(x)[0]
    mask = tf.ones(tf.shape(x)[:2], tf.bool) if mask is None else mask
    if mask.shape.rank != 2:
        raise ArgumentError("attention_mask", "(batch, length)", f"shape {mask.shape}")
    can_leave = not in_xla_program()  # there shapes are fixed, and rows of padding fill a bucket
    waits = tf.ones_like(mask[:, 0]) if can_leave else tf.reduce_any(mask, 1)  # (B,)

    def layer(n, now):
        layout = bert.layout(now.x, now.mask)
        found, _ = bert.encoder.forward_layer(n, layout.to_rows(now.x), layout, now.mask)
        x = layout.to_batch(found)
        logits = model.exit_logits(n, x, now.mask)  # (A, C)
        guess = tf.argmax(logits, -1, tf.int32)
        streak = tf.where(guess == now.guess, now.streak + 1, 0)
        is_done = (streak >= patience) | (_entropy(logits) < entropy) | (n == last)
        is_new = is_done & (tf.gather(now.layers, now.places) == 0)
        layers = tf.where(is_new, n + 1, tf.gather(now.layers, now.places))
        answers = tf.where(tf.expand_dims(is_new, 1), logits, tf.gather(now.logits, now.places))
        places = tf.expand_dims(now.places, 1)
        logits = tf.tensor_scatter_nd_update(now.logits, places, answers)
        layers = tf.tensor_scatter_nd_update(now.layers, places, layers)
        texts = x, now.mask, now.places, guess, streak
        if can_leave:
            stay = tf.where(~is_done)[:, 0]
            texts = (tf.gather(part, stay) for part in texts)
        return _Progress(*texts, logits, layers)

    numbers = tf.range(rows)
    now = _Progress(
        x,
        mask,
        numbers,
        tf.fill([rows], -1),
        tf.zeros_like(numbers),
        tf.zeros((rows, len(model.config.labels))),
        tf.zeros_like(numbers),
    )
    for n in range(last + 1):
        is_needed = tf.reduce_any((now.layers == 0) & waits)
        now = tf.cond(is_needed, lambda n=n, now=now: layer(n, now), lambda now=now: now)
    return {"logits": now.logits, "layers": now.layers}


def check_thresholds(model, patience, entropy):
    """Check thresholds, as far as they are numbers."""
    patience = model.config.num_hidden_layers if patience is None else patience
    for name, kind, least, value in (
        ("patience", Integral, 1, patience),
        ("entropy", Real, 0, entropy),
    ):
        if not tf.is_tensor(value) and not (isinstance(value, kind) and value >= least):
            whole = "whole " if kind is Integral else ""
            raise ArgumentError(name, f"a {whole}number of at least {least}", value)
    return patience, entropy


def _entropy(logits):
    """Entropy of the probabilities (A, C), in nats: (A,)."""
    return tf.reduce_sum(-tf.nn.softmax(logits) * tf.nn.log_softmax(logits), -1)
