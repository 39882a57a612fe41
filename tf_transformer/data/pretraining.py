"""Examples for pretraining BERT, and their tokens masked, with new masks in every epoch.

Axes: B batch, T length, L length of a bucket, P masked positions, V vocabulary. Words share the
axis T: word n of a text is in column n, and the columns after its last word are empty.
"""

from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.data.batches import check_buckets, epochs_dataset
from tf_transformer.errors import ArgumentError, check

# Set explicitly because XLA uses a different default.
_GENERATOR = "philox"
_uniform = partial(tf.random.stateless_uniform, alg=_GENERATOR)


def sentence_pairs(documents, max_tokens, rng, short_probability=0.1):
    """Yield `(first, second, label)`: lists of ids; 0 if the second follows the first, 1 if random.

    Devlin et al. 2019, section 3.1, task 2, and appendix A.2. Sentences are collected up to
    `max_tokens`, or sometimes up to a random smaller number, and split at a random sentence
    boundary. In half of the cases, sentences of another document replace the second part, which is
    then reused for the next pair. Pairs that are too long lose tokens of the longer part, at random
    from its front or back.

    Args:
        documents: list of lists of lists of int token ids: documents, sentences, tokens; none
            empty. A document of a single sentence is only used as a random second part.
        max_tokens: int, the maximum number of tokens of a pair, at least 2.
        rng: `numpy.random.Generator`.
        short_probability: float in [0, 1], the share of the pairs with a smaller limit.

    Raises:
        ValueError: If there are fewer than two documents or none has two sentences, or if
            `max_tokens` is below 2.

    Differs from the published code, which assumes long documents: a sentence without a successor
    gets no pair instead of label 1, so that half of the labels are 0; random sentences have as many
    tokens as those they replace instead of filling the limit, so that lengths reveal no label.

    Example:
        >>> documents = [[[5], [6, 7]], [[8], [9], [8]]]
        >>> next(sentence_pairs(documents, 8, np.random.default_rng(1)))
        ([5], [6, 7], 0)
    """
    check(max_tokens >= 2, "max_tokens", "at least 2, one for each text", max_tokens)
    if len(documents) < 2 or max(map(len, documents)) < 2:
        most = max(map(len, documents), default=0)
        got = f"{len(documents)} documents of at most {most} sentences"
        expected = "at least two, and two sentences in one of them"
        remedy = "Single sentences suffice without next sentence prediction."
        raise ArgumentError("documents", expected, got, remedy)
    for index, document in enumerate(documents):
        start = 0
        while start < len(document) - 1:
            target = max_tokens
            if rng.random() < short_probability:
                target = rng.integers(2, max_tokens, endpoint=True)
            end = max(_end(document, start, target), start + 2)
            middle = rng.integers(start + 1, end)
            first, second = document[start:middle], document[middle:end]
            label = int(rng.random() < 0.5)
            if label:
                other = rng.integers(len(documents) - 1)
                other = documents[other + (other >= index)]
                size = sum(map(len, second))
                # The last sentence from which at least as many tokens remain, or the first one.
                last = len(other) - _end(other[::-1], 0, size)
                begin = rng.integers(last, endpoint=True)
                second = other[begin : _end(other, begin, size)]
            start = middle if label else end
            first, second = (list(chain.from_iterable(part)) for part in (first, second))
            yield *_truncated(first, second, max_tokens, rng), label


def text_blocks(documents, max_tokens):
    """Yield texts of whole sentences, lists of token ids, for masked language modeling only.

    Liu et al. 2019, "RoBERTa", section 4.2, "DOC-SENTENCES": as many sentences as fit, all from the
    same document. A sentence longer than the limit is split. Raises a ValueError if `max_tokens` is
    below 1.

    Args:
        documents: same as in `sentence_pairs`.
        max_tokens: int, the maximum number of tokens of a text, at least 1.

    Example:
        >>> list(text_blocks([[[5], [6, 7], [8]], [[9, 9, 9, 9]]], 3))
        [[5, 6, 7], [8], [9, 9, 9], [9]]
    """
    check(max_tokens >= 1, "max_tokens", "at least 1", max_tokens)
    for document in documents:
        block = []
        for sentence in document:
            if block and len(block) + len(sentence) > max_tokens:
                yield block
                block = []
            block = block + sentence
            while len(block) > max_tokens:
                yield block[:max_tokens]
                block = block[max_tokens:]
        if block:
            yield block


def _end(document, start, target):
    """Return where the sentences from `start` reach `target` tokens, or the document ends."""
    total = 0
    for end in range(start, len(document)):
        total += len(document[end])
        if total >= target:
            return end + 1
    return len(document)


def _truncated(first, second, max_tokens, rng):
    # The same as removing tokens one by one from the longer text, as published: both keep half of
    # the limit, or the shorter one stays whole.
    most = min(len(first), max((max_tokens + 1) // 2, max_tokens - len(second)))
    return _cut(first, most, rng), _cut(second, min(len(second), max_tokens - most), rng)


def _cut(text, length, rng):
    front = rng.binomial(len(text) - length, 0.5)
    return text[front : front + length]


class MaskedTokens(NamedTuple):
    """Result of `mask_tokens`, with P = floor(rate T) + 1.

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
    """Return `MaskedTokens` in which random ones are [MASK], another token or themselves.

    Devlin et al. 2019, section 3.1, task 1, and appendix A.1: of the n tokens of a text that may
    be masked, max(1, round(rate n)) are chosen; of these 80 % become [MASK], 10 % a random token
    and 10 % stay unchanged, independently. With `continues_word`, whole words are chosen, without
    those longer than the remaining number of tokens: the authors' `--do_whole_word_mask`.

    Args:
        ids: integer tensor (B, T).
        may_mask: bool tensor (B, T), False at padding and special tokens.
        seed: int tensor (2,). The same seed gives the same masks.
        mask_id: int, id of [MASK].
        random_ids: integer tensor (N,), the vocabulary without special tokens.
        continues_word: None if every token is a word; or bool tensor (B, T), True at tokens that
            belong to the same word as the previous token ("##ing").
        rate: float in (0, 1), the share of tokens to choose.

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
    _check_masks(ids, may_mask, continues_word, rate)
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


def _check_masks(ids, may_mask, continues_word, rate):
    check(0 < rate < 1, "rate", "a share in (0, 1)", rate, "BERT's is 0.15.")
    for name, mask in (("may_mask", may_mask), ("continues_word", continues_word)):
        if mask is None:
            continue
        shape = tf.TensorShape(mask.shape)
        if mask.dtype != tf.bool or ids.shape.rank != 2 or not shape.is_compatible_with(ids.shape):
            got = f"{mask.dtype} {tuple(shape)} with ids {tuple(ids.shape)}"
            raise ArgumentError(name, "a bool tensor of the shape (batch, length) of ids", got)


class PretrainingBatches:
    """Documents of token ids as a `tf.data` pipeline for `model.fit` of BERT with its heads.

    With next sentence prediction, a row is [CLS] first [SEP] second [SEP], otherwise [CLS] text
    [SEP]; see `sentence_pairs`, `text_blocks` and, for the masks, `mask_tokens`. Batches are those
    of `Buckets`, except that leftover rows of a bucket move to the next one, and the last batch is
    filled by repeating its rows. Raises a ValueError if there are no documents or none that form
    pairs, if the bucket lengths do not increase or are too small, or if the id of [PAD] is not 0.

    Args:
        documents: same as in `sentence_pairs`.
        tokenizer: `Tokenizer` with BERT's special tokens; [PAD] must have the id 0.
        next_sentence: bool, whether to make pairs.
        lengths, tokens_per_batch: see `Buckets`; L includes [CLS] and [SEP].
        continues_word: None, or bool array (V,), True for the tokens that continue a word, to mask
            whole words.
        rate: float, the share of the tokens to mask.
        seed: int, seed for pairs, masks and order.

    Example:
        >>> from tf_transformer.tokenizers import WordPieceTokenizer
        >>> tokenizer = WordPieceTokenizer.train(["low lower"], vocab_size=20)
        >>> options = {"next_sentence": False, "lengths": (6,), "tokens_per_batch": 6}
        >>> batches = PretrainingBatches([tokenizer.encode(["low low low"])], tokenizer, **options)
        >>> inputs, labels = next(iter(batches.dataset(epochs=1)))
        >>> inputs["input_ids"].shape.as_list(), inputs["masked_lm_positions"].shape.as_list()
        ([1, 6], [1, 1])
    """

    def __init__(
        self,
        documents,
        tokenizer,
        *,
        next_sentence,
        lengths,
        tokens_per_batch,
        continues_word=None,
        rate=0.15,
        seed=0,
    ):
        self.next_sentence = next_sentence
        self._special = 3 if next_sentence else 2
        check_buckets(lengths, tokens_per_batch, self._special, ", the number of special tokens")
        expected = "the id 0 for [PAD], since the loss ignores labels of 0"
        check(tokenizer.pad_id == 0, "tokenizer", expected, tokenizer.pad_id)
        check(documents, "documents", "at least one", "none")
        self._documents, self._tokenizer = documents, tokenizer
        self._lengths, self._tokens_per_batch = lengths, tokens_per_batch
        self._continues_word, self._rate, self.seed = continues_word, rate, seed

    @cached_property
    def steps_per_epoch(self):
        """Number of batches in every epoch: that of the first, as the number of pairs varies."""
        return len(self._plan(np.random.default_rng((self.seed, 0)))[1])

    def epoch(self, epoch, first_step=0):
        """Yield `(ids, types, label, mask_seed)`, int32 (B, L), (B, L), (B,), (2,), not masked."""
        rng = np.random.default_rng((self.seed, epoch))
        examples, batches = self._plan(rng)
        order = np.resize(rng.permutation(len(batches)), self.steps_per_epoch)
        mask_seeds = rng.integers(2**31, size=(len(order), 2), dtype=np.int32)
        for i, mask_seed in list(zip(order, mask_seeds, strict=True))[first_step:]:
            length, rows = batches[i]
            ids, types = np.zeros((2, len(rows), length), np.int32)
            for row, n in enumerate(rows):
                text, begin, _ = examples[n]
                ids[row, : len(text)] = text
                types[row, begin : len(text)] = 1
            labels = np.array([examples[n][2] for n in rows], np.int32)
            yield ids, types, labels, mask_seed

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """The masked batches of consecutive epochs, see `Buckets.dataset`.

        Returns:
            `tf.data.Dataset` of `(inputs, labels)`, all int32. Inputs are a dict of `input_ids`,
            `token_type_ids`, `attention_mask` (B, L) and `masked_lm_positions` (B, P). Labels are
            the ids at these positions (B, P), 0 for unused slots; with next sentence prediction a
            dict with the output names of `BertForPreTraining`, including
            `seq_relationship_logits` (B,), the labels of `sentence_pairs`.
        """
        tokenizer = self._tokenizer
        special = list(tokenizer.special_tokens.values())
        random_ids = np.setdiff1d(np.arange(tokenizer.vocab_size, dtype=np.int32), special)
        is_ordinary = np.isin(np.arange(tokenizer.vocab_size), random_ids)

        def hide(ids, types, label, seed):
            continues = self._continues_word
            masked = mask_tokens(
                ids,
                tf.gather(is_ordinary, ids),
                seed,
                mask_id=tokenizer.mask_id,
                random_ids=random_ids,
                continues_word=None if continues is None else tf.gather(continues, ids),
                rate=self._rate,
            )
            inputs = {
                "input_ids": masked.input_ids,
                "token_type_ids": types,
                "attention_mask": tf.cast(ids != tokenizer.pad_id, tf.int32),
                "masked_lm_positions": masked.masked_lm_positions,
            }
            if not self.next_sentence:
                return inputs, masked.labels
            return inputs, {"prediction_logits": masked.labels, "seq_relationship_logits": label}

        shapes = ((None, None), (None, None), (None,), (2,))
        signature = tuple(tf.TensorSpec(shape, tf.int32) for shape in shapes)
        return epochs_dataset(self, signature, first_epoch, first_step, epochs, hide)

    def _plan(self, rng):
        """Return rows (ids, start of the second text, label) and batches (length, indices)."""
        examples = list(self._examples(rng))
        home = np.searchsorted(self._lengths, [len(text) for text, _, _ in examples])
        batches, left = [], np.zeros(0, int)
        for n, length in enumerate(self._lengths):
            rows = rng.permutation(np.concatenate([left, np.flatnonzero(home == n)]))
            size = max(1, self._tokens_per_batch // length)
            whole = len(rows) - len(rows) % size
            batches += [(length, batch) for batch in rows[:whole].reshape(-1, size)]
            left = rows[whole:]
        if len(left):
            batches.append((length, np.resize(left, size)))
        return examples, batches

    def _examples(self, rng):
        start, end = self._tokenizer.start_id, self._tokenizer.end_id
        most = self._lengths[-1] - self._special
        if not self.next_sentence:
            for text in text_blocks(self._documents, most):
                yield [start, *text, end], len(text) + 2, 0
            return
        for first, second, label in sentence_pairs(self._documents, most, rng):
            yield [start, *first, end, *second, end], len(first) + 2, label
