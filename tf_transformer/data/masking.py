"""Masking tokens for masked language modeling, with new masks in every epoch.

Axes: B batch, T length, P masked positions. Words share the axis T: word n of a text is in column
n, and the columns after its last word are empty.
"""

from functools import partial
from typing import NamedTuple

import tensorflow as tf

from tf_transformer.errors import ArgumentError

# Set explicitly because XLA uses a different default.
_GENERATOR = "philox"
_uniform = partial(tf.random.stateless_uniform, alg=_GENERATOR)


class MaskedTokens(NamedTuple):
    """Result of `mask_tokens`.

    Args:
        input_ids: int32 tensor (B, T), the input of the model.
        masked_lm_positions: int32 tensor (B, P), increasing in each row, 0 for unused slots.
        labels: int32 tensor (B, P), the original ids at these positions, 0 for unused slots.
        weights: float32 tensor (B, P), 1, or 0 for unused slots.

    Example:
        >>> MaskedTokens(1, 2, 3, 4).labels
        3
    """

    input_ids: tf.Tensor
    masked_lm_positions: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor


def mask_tokens(ids, may_mask, seed, *, mask_id, random_ids, continues_word=None, rate=0.15):
    """Choose random tokens and replace them with [MASK], a random token or themselves.

    Devlin et al. 2019, section 3.1, task 1, and appendix A.1: of the n tokens of a text that may
    be masked, max(1, round(rate n)) are chosen; of these 80 % become [MASK], 10 % a random token
    and 10 % stay unchanged. With `continues_word`, whole words are chosen in random order, and
    words longer than the remaining number of tokens are skipped: the authors'
    `--do_whole_word_mask`. The replacement is drawn independently for each token.

    Args:
        ids: integer tensor (B, T).
        may_mask: bool tensor (B, T), False at padding and special tokens.
        seed: int tensor (2,). The same seed gives the same masks.
        mask_id: int, id of [MASK].
        random_ids: integer tensor (N,), the tokens that random tokens are drawn from: the
            vocabulary without special tokens.
        continues_word: None if every token is a word; or bool tensor (B, T), True at tokens that
            belong to the same word as the previous token ("##ing").
        rate: float in (0, 1), the share of tokens to choose.

    Returns:
        `MaskedTokens` with P = floor(rate T) + 1.

    Raises:
        ValueError: If `rate` is outside (0, 1), `ids`, `may_mask` or `continues_word` is not of
            shape (B, T), or a mask is not bool.

    Differs from the published code, whose n includes [CLS] and [SEP], although these are never
    chosen, and whose random tokens include special tokens.

    Example:
        >>> ids = tf.constant([[2, 7, 8, 9, 3, 0]])
        >>> masked = mask_tokens(ids, ids > 4, (1, 2), mask_id=4, random_ids=tf.range(5, 12))
        >>> [tensor.numpy().tolist() for tensor in masked]
        [[[2, 7, 8, 4, 3, 0]], [[3]], [[9]], [[1.0]]]
    """
    ids = tf.cast(ids, tf.int32)
    _check(ids, may_mask, continues_word, rate)
    batch, length = ids.shape[0] or tf.shape(ids)[0], ids.shape[1] or tf.shape(ids)[1]
    order_seed, kind_seed, token_seed = tf.unstack(tf.random.split(seed, 3, alg=_GENERATOR))
    draw = _uniform((batch, length), order_seed)
    chosen = _choose(may_mask, continues_word, rate, draw)

    kind = _uniform((batch, length), kind_seed)
    drawn = _uniform((batch, length), token_seed, 0, tf.size(random_ids), tf.int32)
    drawn = tf.gather(tf.cast(random_ids, tf.int32), drawn)
    seen = tf.where(kind < 0.8, mask_id, tf.where(kind < 0.9, drawn, ids))

    # In float64, as in Python, so that the result is the same for static and dynamic T.
    most = rate * (length if ids.shape[1] else tf.cast(length, tf.float64))
    most = (int(most) if ids.shape[1] else tf.cast(most, tf.int32)) + 1
    positions = tf.sort(tf.where(chosen, tf.range(length), length), axis=1)[:, :most]  # (B, P)
    is_one = positions < length
    positions = tf.where(is_one, positions, 0)
    labels = tf.where(is_one, tf.gather(ids, positions, batch_dims=1), 0)
    return MaskedTokens(tf.where(chosen, seen, ids), positions, labels, tf.cast(is_one, tf.float32))


def _choose(may_mask, continues_word, rate, draw):
    """Return the chosen tokens, bool (B, T); `draw`, float32 (B, T), orders the words."""
    batch, length = tf.unstack(tf.shape(may_mask))
    begins = may_mask
    if continues_word is not None:
        begins &= ~(continues_word & tf.pad(may_mask[:, :-1], [[0, 0], [1, 0]]))
    word = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1, 0)  # (B, T)
    row = length * tf.expand_dims(tf.range(batch), 1)
    # A segment for each word of each row, so that the sum is its number of tokens.
    sizes = tf.math.unsorted_segment_sum(tf.cast(may_mask, tf.int32), row + word, batch * length)
    sizes = tf.reshape(sizes, (batch, length))
    count = tf.reduce_sum(sizes, axis=1, keepdims=True)  # (B, 1)
    count = tf.maximum(1, tf.cast(tf.round(rate * tf.cast(count, tf.float64)), tf.int32))
    return may_mask & tf.gather(_choose_words(sizes, count, draw), word, batch_dims=1)


def _choose_words(sizes, count, draw):
    """Choose words in the order of `draw`, skipping those that exceed the remaining count."""
    order = tf.argsort(draw, axis=1)
    sizes = tf.gather(sizes, order, batch_dims=1)

    def fitting(taken, left):
        return ~taken & (sizes > 0) & (sizes <= left)

    # In parallel rather than word by word: a word that is too long now stays too long later, and
    # the remaining words are taken up to the first that no longer fits.
    def take(taken, left):
        candidates = tf.where(fitting(taken, left), sizes, 0)
        more = (candidates > 0) & (tf.cumsum(candidates, axis=1) <= left)
        return taken | more, left - tf.reduce_sum(tf.where(more, sizes, 0), axis=1, keepdims=True)

    taken, _ = tf.while_loop(
        lambda taken, left: tf.reduce_any(fitting(taken, left)),
        take,
        (tf.zeros_like(sizes, tf.bool), count),
    )
    return tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)


def _check(ids, may_mask, continues_word, rate):
    if not 0 < rate < 1:
        raise ArgumentError("rate", "a share in (0, 1)", rate, "BERT's is 0.15.")
    for name, mask in (("may_mask", may_mask), ("continues_word", continues_word)):
        if mask is None:
            continue
        shape = tf.TensorShape(mask.shape)
        if mask.dtype != tf.bool or ids.shape.rank != 2 or not shape.is_compatible_with(ids.shape):
            got = f"{mask.dtype} {tuple(shape)} with ids {tuple(ids.shape)}"
            raise ArgumentError(name, "a bool tensor of the shape (batch, length) of ids", got)
