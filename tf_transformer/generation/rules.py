"""The rules for tokens, `token_rules` and `no_repeat_ngram`.

Axes: B batch, R rows, V vocabulary, L maximum length.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.tensors import check_range

IMPOSSIBLE = -float("inf")


@dataclasses.dataclass(frozen=True)
class TokenRules:
    """The rules of `token_rules`, see `greedy_decode`."""

    forced_first: Any = None
    forced_last: int | None = None
    bad_words: Sequence[Sequence[int]] = ()
    suppressed_first: Sequence[int] = ()
    repetition_penalty: float = 1.0
    renormalize: bool = False
    counts_start: bool = False

    def __post_init__(self):
        if not all(isinstance(word, tuple | list) and word for word in self.bad_words):
            raise ArgumentError("bad_words", "lists of at least one id", f"{self.bad_words!r}")
        for token in self.ids:
            check_range("token_rules", token, 0)
        check_range("repetition_penalty", self.repetition_penalty, 0.0, above=True)

    @property
    def ids(self):
        """All ids that the rules name, except for a tensor of first tokens."""
        words = ((self.forced_first, self.forced_last), self.suppressed_first, *self.bad_words)
        ids = [token for word in words for token in word]
        return [token for token in ids if token is not None and not tf.is_tensor(token)]


def ruled_logits(logits, history, position, rules, of_rows):
    """The logits (R, V) after the rules that need more than a few candidates."""
    own, vocabulary = rules.tokens, np.arange(logits.shape[-1])
    check_range("token_rules", max(own.ids, default=0), 0, logits.shape[-1] - 1)
    text, length, first = history, position, of_rows["prompt_lengths"]
    if own.counts_start:
        text, length = tf.concat([of_rows["start_id"], history], 1), position + 1
    ruled = logits
    if own.repetition_penalty != 1:
        ruled = _penalized(ruled, text, length, own.repetition_penalty)
    if rules.no_repeat_ngram:
        ruled = _without_repeats(ruled, text, length, rules.no_repeat_ngram)
    for size in sorted(set(map(len, own.bad_words))):
        words = np.array([word for word in own.bad_words if len(word) == size], np.int32)
        ruled = _without_words(ruled, text, length, words)
    if own.suppressed_first:
        # After a forced token, which no prompt's continuation has, the one after it is the first.
        first = tf.where(first == 0, int(own.forced_first is not None), first)
        here = np.isin(vocabulary, own.suppressed_first) & tf.equal(position, first)
        ruled = tf.where(here, IMPOSSIBLE, ruled)
    token, forced = of_rows["forced_first"], []
    if own.forced_first is not None:
        check_range("forced_first", token, -1, logits.shape[-1] - 1)
        forced.append((token, (position == 0) & (token >= 0)))
    if own.forced_last is not None:
        forced.append((own.forced_last, position + 1 == of_rows["limits"]))
    for token, here in forced:
        ruled = tf.where(here, tf.where(vocabulary == token, 0.0, IMPOSSIBLE), ruled)
    if own.renormalize:
        barred = rules.bars(vocabulary, position, of_rows["min_length"])
        ruled = tf.nn.log_softmax(tf.where(barred, IMPOSSIBLE, ruled))
    return tf.where(position < of_rows["prompt_lengths"], logits, ruled)


def _penalized(logits, text, length, penalty):
    """Make the tokens of a text less likely: Keskar et al. 2019, "CTRL", section 4.1."""
    rows = tf.expand_dims(tf.range(tf.shape(text)[0]), 1)
    places = tf.stack([tf.broadcast_to(rows, tf.shape(text)), text], -1)
    read = tf.broadcast_to(tf.range(tf.shape(text)[1]) < length, tf.shape(text))
    read = tf.cast(read, logits.dtype)
    is_read = tf.tensor_scatter_nd_max(tf.zeros_like(logits), places, read) > 0
    return tf.where(is_read, tf.where(logits < 0, logits * penalty, logits / penalty), logits)


def _without_words(logits, text, length, words):
    """Mask the last tokens of words (W, n) after their other tokens."""
    before = length - words.shape[1] + 1
    recent = tf.gather(text, tf.maximum(before + tf.range(words.shape[1] - 1), 0), axis=1)
    same = tf.equal(tf.expand_dims(recent, 1), words[:, :-1])  # (R, W, n - 1)
    return _mask(logits, words[:, -1], tf.reduce_all(same, -1) & (before >= 0))


def _without_repeats(logits, history, position, n):
    """Mask the tokens that followed an earlier occurrence of the last n - 1 tokens of the row."""
    # A row with a single possible token, as in a prompt, is unchanged (see `LanguageModel.start`).
    count = tf.maximum(tf.shape(history)[1] - n + 1, 0)  # of possible places of an n-gram
    choice = tf.math.count_nonzero(logits > IMPOSSIBLE, axis=1, keepdims=True) > 1  # (R, 1)
    last = tf.gather(history, tf.maximum(position - n + 1 + tf.range(n - 1), 0), axis=1)
    same = tf.range(count) + n - 1 < position  # (L - n + 1,), whole n-grams
    same = tf.broadcast_to(same, (tf.shape(history)[0], count))
    for offset in range(n - 1):
        same &= tf.equal(history[:, offset : offset + count], last[:, offset : offset + 1])
    return _mask(logits, history[:, n - 1 :], same & choice)


def _mask(logits, tokens, where):
    """Mask the tokens (..., M) of each row (R, V), where (R, M) is true."""
    tokens = tf.broadcast_to(tokens, tf.shape(where))
    rows = tf.broadcast_to(tf.expand_dims(tf.range(tf.shape(where)[0]), 1), tf.shape(where))
    most = tf.where(where, IMPOSSIBLE, -IMPOSSIBLE)
    return tf.tensor_scatter_nd_min(logits, tf.stack([rows, tokens], -1), most)
