"""The rules for the next token, and the choice of the likeliest allowed ones.

Axes: B batch, K rows of a sentence, R = B * K rows, V vocabulary, C candidates, L maximum length.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check_choice

IMPOSSIBLE = -float("inf")


def check_range(name, value, least, most=None, *, above=False):
    """Check a setting: a number immediately, a tensor when the graph runs."""
    if value is None:
        return
    expected = f"{'more than' if above else 'at least'} {least:g}"
    if most is not None:
        expected = f"{least:g} to {most:g}" if not above else f"{expected}, at most {most:g}"
    if tf.is_tensor(value):
        inside = value > least if above else value >= least
        if value.dtype.is_floating:
            inside &= tf.math.is_finite(value)
        if most is not None:
            inside &= value <= most
        tf.debugging.Assert(tf.reduce_all(inside), [f"{name}: expected {expected}, got", value])
        return
    kind, words = (Integral, "a whole number") if isinstance(least, int) else (Real, "a number")
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ArgumentError(name, words, f"{value!r}")
    inside = value > least if above else value >= least  # NaN is outside too
    if not inside or not math.isfinite(value) or (most is not None and value > most):
        raise ArgumentError(name, expected, value)


@dataclasses.dataclass(frozen=True)
class TokenRules:
    """The rules of `token_rules`, see `greedy_decode`."""

    forced_first: int | None = None
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
        """All ids that the rules name."""
        words = ((self.forced_first, self.forced_last), self.suppressed_first, *self.bad_words)
        return [token for word in words for token in word if token is not None]

    @property
    def change_logits(self):
        """bool, whether there is any rule."""
        return bool(self.ids) or self.repetition_penalty != 1 or self.renormalize


@dataclasses.dataclass(frozen=True)
class DecodingRules:
    """Special tokens, lengths and rules for tokens, shared by all decoding strategies."""

    start_id: Any
    end_id: Any
    max_length: Any
    limits: Any = None
    min_length: Any = 0
    no_repeat_ngram: int = 0
    pad_id: int | None = 0
    prompt_lengths: Any = 0
    token_rules: dict | None = None
    OF_SENTENCES: ClassVar = ("limits", "start_id", "min_length", "prompt_lengths")

    def __post_init__(self):
        check_range("pad_id", self.pad_id, 0)
        for end_id in self.end_ids:
            check_range("end_id", end_id, 1 if self.pad_id == 0 else 0)
        if self.pad_id in self.end_ids:
            expected = f"another id than the end token's, {self.end_id}, or None"
            raise ArgumentError("pad_id", expected, self.pad_id)
        check_range("max_length", self.max_length, 1)
        check_range("min_length", self.min_length, 0)
        check_range("no_repeat_ngram", self.no_repeat_ngram, 0)
        for name in self.token_rules or ():
            check_choice("token_rules", name, TokenRules.__dataclass_fields__)

    @functools.cached_property
    def tokens(self):
        """The `token_rules` as an object."""
        return TokenRules(**self.token_rules or {})

    @property
    def end_ids(self):
        """Tuple of int, all end tokens."""
        return tuple(self.end_id) if isinstance(self.end_id, tuple | list) else (self.end_id,)

    @property
    def filler(self):
        """int, what follows the end of a sentence in the output."""
        return (*self.end_ids, 0)[0] if self.pad_id is None else self.pad_id

    def of_sentences(self, batch_size):
        """What the rules say of each sentence, a dict of int32 (B,), `OF_SENTENCES`."""
        limits = tf.fill((batch_size,), self.max_length)
        if self.limits is not None:
            limits = tf.minimum(_checked_each("limits", self.limits, batch_size, 1), limits)

        def of_each(name):
            value = tf.convert_to_tensor(getattr(self, name), tf.int32)
            if value.shape.rank == 0:
                return tf.fill((batch_size,), value)
            return _checked_each(name, value, batch_size, 0)

        return {"limits": limits, **{name: of_each(name) for name in self.OF_SENTENCES[1:]}}

    def is_end(self, tokens):
        """Whether tokens are end tokens."""
        return is_among(tokens, self.end_ids)

    def bars(self, tokens, position, min_length):
        """Whether tokens are never chosen here: the padding, and before `min_length` the end."""
        barred = self.is_end(tokens) & (position < min_length)
        return barred if self.pad_id is None else barred | tf.equal(tokens, self.pad_id)


def is_among(tokens, ids):
    """Whether each of the tokens, int32, is one of the ids, a tuple of int."""
    found = tf.zeros_like(tokens, tf.bool)
    for one in ids:
        found |= tf.equal(tokens, one)
    return found


def _checked_each(name, values, batch_size, least):
    """A number for each sentence, int32 (B,), after a check."""
    values = tf.convert_to_tensor(values, tf.int32)
    if values.shape.rank != 1:
        expected = "one for each sentence, shape (B,)"
        raise ArgumentError(name, expected, f"shape {values.shape}")
    count = tf.size(values)
    message = [f"{name}: expected one for each of", batch_size, "sentences, got", count]
    tf.debugging.Assert(tf.equal(count, batch_size), message)
    check_range(name, values, least)
    return values


def top_sums(values, offsets, count):
    """The largest `values[b * K + k, v] + offsets[b, k]` of each sentence, the first of ties."""
    # As `tf.math.top_k` of (B, K * V), in two steps if that is long: the C entries are in the C
    # blocks with the largest maxima, so only those are sorted. Finding a maximum is much cheaper.
    width, rows = values.shape[-1], offsets.shape[-1]
    batch = tf.shape(offsets)[0]
    size = _block_size(width, rows, count)
    blocks = -(-width // size)  # of a row, n
    if width % size:
        fill = [[0, 0], [0, blocks * size - width]]
        values = tf.pad(values, fill, constant_values=IMPOSSIBLE)
    values = tf.reshape(values, (batch, rows * blocks, size))  # (B, K * n, b)
    offsets = tf.repeat(offsets, blocks, axis=1)  # (B, K * n)
    largest = _plus(tf.reduce_max(values, axis=-1), offsets)
    _, chosen = tf.math.top_k(largest, min(count, rows * blocks))
    chosen = tf.sort(chosen, axis=-1)  # keeps ties in order
    offsets = tf.expand_dims(tf.gather(offsets, chosen, batch_dims=1), -1)
    sums = _plus(tf.gather(values, chosen, batch_dims=1), offsets)  # (B, C, b)
    sums, order = tf.math.top_k(tf.reshape(sums, (batch, -1)), count)
    block = tf.gather(chosen, order // size, batch_dims=1)  # (B, C)
    tokens = block % blocks * size + order % size
    # The padding of a last block is selected only where all remaining sums are -inf.
    return sums, block // blocks, tf.minimum(tokens, width - 1)


def _plus(values, offsets):
    """The sums; -inf wherever the offset is -inf, since XLA ranks NaN above everything."""
    return tf.where(offsets > IMPOSSIBLE, values + offsets, IMPOSSIBLE)


def _block_size(width, rows, count):
    """The size of the blocks of `top_sums`."""
    # sqrt(K V / C): then finding the C blocks and searching them sort equally many numbers.
    best = math.isqrt(rows * width // count)
    if best < 4:  # nearly all are selected
        return width
    return min(range(best, 2 * best), key=lambda size: -width % size)  # the least padding


def best_allowed(logits, offsets, count, history, position, rules, sentences):
    """`top_sums` of the allowed tokens, of all with `count=None`: sums, rows and tokens (B, C)."""
    # Never the padding, which marks the end of a sentence; no end token before `min_length` tokens;
    # no repeated n-gram (Paulus et al. 2018, section 2.5). No rule applies within a prompt.
    if logits.shape[-1] is None:
        expected = "a vocabulary of known size from the step function"
        remedy = "Set it with tf.ensure_shape."
        raise ArgumentError("logits", expected, f"shape {logits.shape}", remedy)
    beams, everything = offsets.shape[-1], offsets.shape[-1] * logits.shape[-1]
    if rules.no_repeat_ngram or rules.tokens.change_logits:
        of_rows = {name: tf.expand_dims(tf.repeat(x, beams), 1) for name, x in sentences.items()}
        logits = _ruled(logits, history, position, rules, of_rows)
    of_sentences = {name: tf.expand_dims(x, 1) for name, x in sentences.items()}
    count = min(count or everything, everything)
    # A few extra candidates are cheaper than masking columns of all logits.
    may_bar_ends = tf.is_tensor(rules.min_length) or rules.min_length > 0
    more = min(count + beams * (1 + may_bar_ends * len(rules.end_ids)), everything)
    sums, rows, tokens = top_sums(logits, offsets, more)
    own = position >= of_sentences["prompt_lengths"]  # (B, 1)
    barred = own & rules.bars(tokens, position, of_sentences["min_length"])
    # NaN, which the loops report, must not rank first.
    sums = tf.where(barred | tf.math.is_nan(sums), IMPOSSIBLE, sums)
    sums, order = tf.math.top_k(sums, count)
    return sums, tf.gather(rows, order, batch_dims=1), tf.gather(tokens, order, batch_dims=1)


def _ruled(logits, history, position, rules, of_rows):
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
    forced = (own.forced_first, position == 0), (own.forced_last, position + 1 == of_rows["limits"])
    for token, here in forced:
        if token is not None:
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
    length = tf.shape(history)[1]
    count = tf.maximum(length - n + 1, 0)  # of possible places of an n-gram
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
