"""Rules for the next token, their checks, and the best allowed tokens.

Axes: B batch, K rows of a sentence, R = B * K rows, V vocabulary, C candidates, L maximum length.
"""

import dataclasses
import math
from numbers import Integral, Real
from typing import Any

import tensorflow as tf

from tf_transformer.errors import ArgumentError


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
        message = [f"{name}: expected {expected}, got", value]
        tf.debugging.Assert(tf.reduce_all(inside), message)
        return
    whole = isinstance(least, int)
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        kind = "a whole number" if whole else "a number"
        raise ArgumentError(name, kind, f"{value!r}")
    inside = value > least if above else value >= least  # NaN is outside too
    if not inside or not math.isfinite(value) or (most is not None and value > most):
        raise ArgumentError(name, expected, value)


def unusable(logits):
    """Rows from which no token can be chosen: NaN, infinity, or no possible token."""
    # A sum propagates NaN; a maximum may not.
    not_a_number = tf.math.is_nan(tf.reduce_sum(logits, axis=-1))
    return not_a_number | ~tf.math.is_finite(tf.reduce_max(logits, axis=-1))


def refuse_broken(step):
    """Report the step at which a model returned unusable logits; does nothing under XLA."""
    tf.debugging.Assert(
        step < 0,
        [
            "logits: expected numbers, got NaN, infinity or no possible token at step (from 0)",
            step,
            "Check the weights: diverged training produces such logits.",
        ],
    )


@dataclasses.dataclass(frozen=True)
class DecodingRules:
    """Special tokens, lengths and the n-gram rule, shared by all decoding strategies."""

    start_id: int
    end_id: int
    max_length: Any
    limits: Any = None
    min_length: int = 0
    no_repeat_ngram: int = 0

    def __post_init__(self):
        check_range("end_id", self.end_id, 1)
        check_range("max_length", self.max_length, 1)
        check_range("min_length", self.min_length, 0)
        check_range("no_repeat_ngram", self.no_repeat_ngram, 0)

    def sentence_limits(self, batch_size):
        """The maximum number of tokens of each sentence."""
        if self.limits is None:
            return tf.fill((batch_size,), self.max_length)
        limits = tf.convert_to_tensor(self.limits, tf.int32)
        if limits.shape.rank != 1:
            raise ArgumentError(
                "limits", "one for each sentence, shape (B,)", f"shape {limits.shape}"
            )
        count = tf.size(limits)
        message = ["limits: expected one for each of", batch_size, "sentences, got", count]
        tf.debugging.Assert(tf.equal(count, batch_size), message)
        check_range("limits", limits, 1)
        return tf.minimum(limits, self.max_length)


def top_sums(values, offsets, count):
    """The largest `values[b * K + k, v] + offsets[b, k]` of each sentence, the first of ties.

    `tf.math.top_k` of (B, K * V), in two steps if that is long: the C entries are in the C blocks
    with the largest maxima, so only those blocks are sorted. Finding a maximum is much cheaper.
    """
    width, rows = values.shape[-1], offsets.shape[-1]
    batch = tf.shape(offsets)[0]
    size = _block_size(width, rows, count)
    blocks = -(-width // size)  # of a row, n
    if width % size:
        fill = [[0, 0], [0, blocks * size - width]]
        values = tf.pad(values, fill, constant_values=-float("inf"))
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
    impossible = -float("inf")
    return tf.where(offsets > impossible, values + offsets, impossible)


def _block_size(width, rows, count):
    """The size with as many blocks as entries in the selected blocks, which minimizes sorting."""
    best = math.isqrt(rows * width // count)
    if best < 4:  # nearly all are selected
        return width
    return min(range(best, 2 * best), key=lambda size: -width % size)  # the least padding


IMPOSSIBLE = -float("inf")


def best_allowed(logits, so_far, count, history, position, rules):
    """The likeliest extensions of the K rows of each sentence.

    Never the padding id 0, which marks the end of a sentence; no end token before `min_length`
    tokens; no token that would repeat an n-gram (Paulus et al. 2018, section 2.5), unless it is the
    only possible token, as in a prompt (see `LanguageModel.start`).
    """
    if logits.shape[-1] is None:
        raise ArgumentError(
            "logits",
            "a vocabulary of known size from the step function",
            f"shape {logits.shape}",
            "Set it with tf.ensure_shape.",
        )
    if rules.no_repeat_ngram:
        logits = _without_repeats(logits, history, position, rules.no_repeat_ngram)
    beams, everything = so_far.shape[-1], so_far.shape[-1] * logits.shape[-1]
    count = min(count or everything, everything)
    # A few extra candidates are cheaper than masking two columns of all logits.
    more = min(count + beams * (1 + bool(rules.min_length)), everything)
    sums, rows, tokens = top_sums(logits, so_far, more)
    early = tf.equal(tokens, rules.end_id) & (position < rules.min_length)
    # NaN, which the loops report, must not rank first.
    sums = tf.where(tf.equal(tokens, 0) | early | tf.math.is_nan(sums), IMPOSSIBLE, sums)
    sums, order = tf.math.top_k(sums, count)
    return sums, tf.gather(rows, order, batch_dims=1), tf.gather(tokens, order, batch_dims=1)


def among_tokens(step, num_tokens):
    """Return a step function that omits the logits of ids without a token."""

    def limited(tokens, state):
        logits, state = step(tokens, state)
        has_more = num_tokens not in (None, logits.shape[-1])
        return logits[:, :num_tokens] if has_more else logits, state

    return limited


def _without_repeats(logits, history, position, n):
    """Mask the tokens that followed an earlier occurrence of the last n - 1 tokens of the row.

    A row with a single possible token is unchanged: the model leaves no choice.
    """
    length = tf.shape(history)[1]
    count = tf.maximum(length - n + 1, 0)  # of possible places of an n-gram
    choice = tf.math.count_nonzero(logits > IMPOSSIBLE, axis=1, keepdims=True) > 1  # (R, 1)
    last = tf.gather(history, tf.maximum(position - n + 1 + tf.range(n - 1), 0), axis=1)
    same = tf.range(count) + n - 1 < position  # (L - n + 1,), whole n-grams
    same = tf.broadcast_to(same, (tf.shape(history)[0], count))
    for offset in range(n - 1):
        same &= tf.equal(history[:, offset : offset + count], last[:, offset : offset + 1])
    followed = tf.where(same & choice, history[:, n - 1 :], 0)  # the padding is masked in any case
    rows = tf.broadcast_to(tf.expand_dims(tf.range(tf.shape(history)[0]), 1), tf.shape(followed))
    updates = tf.fill(tf.shape(followed), IMPOSSIBLE)
    return tf.tensor_scatter_nd_update(logits, tf.stack([rows, followed], -1), updates)
