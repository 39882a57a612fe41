"""The rules for tokens, `token_rules` and `no_repeat_ngram`.

Axes: B batch, R rows, V vocabulary, L maximum length.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.tensors import check_range, in_xla_program

IMPOSSIBLE = -float("inf")
_FEW = 8  # tokens; each is a candidate more for each beam


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

    @functools.cached_property
    def barred(self):
        """The tokens that never occur, if they are few: they are left out of the candidates."""
        words = [word[0] for word in self.bad_words if len(word) == 1]
        forced = self.forced_first, self.forced_last  # may be bad words elsewhere
        are_others = not any(tf.is_tensor(token) or token in words for token in forced)
        return tuple(words) if len(words) <= _FEW and are_others else ()

    @property
    def ids(self):
        """All ids that the rules name, except for a tensor of first tokens."""
        words = ((self.forced_first, self.forced_last), self.suppressed_first, *self.bad_words)
        ids = [token for word in words for token in word]
        return [token for token in ids if token is not None and not tf.is_tensor(token)]


def ruled_logits(logits, history, position, rules, of_rows, total=0.0):
    """The logits (R, V) after the rules that need more than a few candidates."""
    # `total` (R, 1) is what the logits have more than the log probabilities that a rule is for.
    own, vocabulary = rules.tokens, np.arange(logits.shape[-1])
    text, length, first = history, position, of_rows["prompt_lengths"]
    if own.counts_start:
        text, length = tf.concat([of_rows["start_id"], history], 1), position + 1
    ruled = logits
    if own.repetition_penalty != 1:
        ruled = _penalized(ruled, total, text, length, own.repetition_penalty)
    if rules.no_repeat_ngram:
        ruled = _without_repeats(ruled, text, length, rules.no_repeat_ngram)
    for size in sorted(set(map(len, own.bad_words)) - ({1} if own.barred else set())):
        words = np.array([word for word in own.bad_words if len(word) == size], np.int32)
        ruled = _without_words(ruled, text, length, words)
    if own.suppressed_first:
        # After a forced token, which no prompt's continuation has, the one after it is the first.
        first = tf.where(first == 0, int(own.forced_first is not None), first)
        barred = np.isin(vocabulary, own.suppressed_first)
        less = functools.partial(tf.where, barred, IMPOSSIBLE, ruled)
        ruled = _where(tf.equal(position, first), less, ruled)
    token, forced = of_rows["forced_first"], []
    if own.forced_first is not None:
        check_range("forced_first", token, -1, logits.shape[-1] - 1)
        forced.append((token, (position == 0) & (token >= 0)))
    if own.forced_last is not None:
        forced.append((own.forced_last, position + 1 == of_rows["limits"]))
    for token, here in forced:
        only = functools.partial(tf.where, vocabulary == token, total, IMPOSSIBLE)
        ruled = _where(here, only, ruled)
    if own.renormalize:
        barred = rules.bars(vocabulary, position, of_rows["min_length"])
        ruled = tf.nn.log_softmax(tf.where(barred, IMPOSSIBLE, ruled)) + total
    return _where(position < of_rows["prompt_lengths"], lambda: logits, ruled)


def _where(here, other, logits):
    """The other logits (R, V) in the rows (R, 1) that are `here`, which are mostly none."""
    if in_xla_program():  # which fuses a choice with what comes before
        return tf.where(here, other(), logits)
    return tf.cond(tf.reduce_any(here), lambda: tf.where(here, other(), logits), lambda: logits)


def _penalized(logits, total, text, length, penalty):
    """Make the tokens of a text less likely: Keskar et al. 2019, "CTRL", section 4.1."""
    rows = tf.expand_dims(tf.range(tf.shape(text)[0]), 1)
    places = tf.stack([tf.broadcast_to(rows, tf.shape(text)), text], -1)
    before = tf.gather_nd(logits, places)  # (R, L)
    values = before - total
    values = tf.where(values < 0, values * penalty, values / penalty) + total
    values = tf.where(tf.range(tf.shape(text)[1]) < length, values, before)
    change = tf.tensor_scatter_nd_min if penalty > 1 else tf.tensor_scatter_nd_max
    return change(logits, places, values)


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
