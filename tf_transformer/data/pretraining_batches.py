"""Batches for the pretraining of a BERT: other masks, and other pairs, in every epoch.

Axes: B batch, L bucket length, P masked positions, V vocabulary.
"""

from functools import cached_property

import numpy as np

from tf_transformer.data.epochs_dataset import epochs_dataset
from tf_transformer.data.pretraining_examples import sentence_pairs, text_blocks


class PretrainingBatches:
    """Documents of token ids as a `tf.data` pipeline for `model.fit` of a BERT with its heads.

    With next sentence prediction a row is [CLS] first [SEP] second [SEP], else [CLS] text [SEP]:
    see `sentence_pairs` and `text_blocks`; what is hidden in it, `mask_tokens`. A row falls into
    the first bucket that holds it, and every batch of a bucket has the same shape. What is too
    little for a batch of its bucket goes into the next one; the last batch of all is filled up
    with rows that it has already. Epoch e depends on `seed` and e alone: a run can go on at any
    step as if it had never stopped.

    Args:
        documents: list of lists of lists of int token ids: documents, sentences, tokens; none
            empty.
        tokenizer: `Tokenizer` with BERT's special tokens, of which [PAD] has the id 0.
        next_sentence: bool, whether to make pairs.
        lengths: increasing ints, the bucket lengths L, counting [CLS] and [SEP].
        tokens_per_batch: int; a bucket's batch has tokens_per_batch / L rows, at least 1.
        continues_word: None, or bool array (V,), True for the tokens that continue a word: then
            words are hidden whole.
        rate: float, the share of the tokens to hide.
        seed: int, of pairs, masks and order.

    Raises:
        ValueError: no documents, or none that pairs can be made of; bucket lengths that do not
            increase or leave no room; another id of [PAD].

    Example:
        >>> from tf_transformer.tokenizers import WordPieceTokenizer
        >>> tokenizer = WordPieceTokenizer.train(["low lower"], vocab_size=20)
        >>> batches = PretrainingBatches(
        ...     [tokenizer.encode(["low low low"])], tokenizer, next_sentence=False,
        ...     lengths=(6,), tokens_per_batch=6,
        ... )
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
        if list(lengths) != sorted(set(lengths)) or not lengths or lengths[0] <= self._special:
            raise ValueError(
                f"lengths: expected increasing ints above {self._special}, the number of special "
                f"tokens, got {lengths}."
            )
        if tokenizer.pad_id != 0:
            raise ValueError(
                f"tokenizer: expected the id 0 for [PAD], by which the loss knows what was not "
                f"hidden, got {tokenizer.pad_id}."
            )
        if not documents:
            raise ValueError("documents: expected at least one, got none.")
        self._documents = documents
        self._tokenizer = tokenizer
        self._lengths = lengths
        self._tokens_per_batch = tokens_per_batch
        self._continues_word = continues_word
        self._rate = rate
        self.seed = seed

    @cached_property
    def steps_per_epoch(self):
        """Number of batches in an epoch: that of the first one, to which others are cut or filled.

        Which pairs are made is left to chance, and so would be their number.
        """
        return len(self._plan(np.random.default_rng((self.seed, 0)))[1])

    def epoch(self, epoch):
        """Yield the batches of one epoch, nothing hidden yet.

        Args:
            epoch: int, 0 for the first.

        Yields:
            `(ids, types, label, mask_seed)`: int32 arrays (B, L), (B, L), (B,) and (2,). Label 0
            = the second text follows the first, 1 = it is from elsewhere.
        """
        rng = np.random.default_rng((self.seed, epoch))
        examples, batches = self._plan(rng)
        for i in np.resize(rng.permutation(len(batches)), self.steps_per_epoch):
            length, rows = batches[i]
            ids, types = np.zeros((2, len(rows), length), np.int32)
            for row, n in enumerate(rows):
                text, begin, _ = examples[n]
                ids[row, : len(text)] = text
                types[row, begin : len(text)] = 1
            labels = np.array([examples[n][2] for n in rows], np.int32)
            yield ids, types, labels, rng.integers(2**31, size=2, dtype=np.int32)

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """The batches as a `tf.data.Dataset`, with tokens hidden.

        Args:
            first_epoch, first_step, epochs: as of `epochs_dataset`.

        Returns:
            `tf.data.Dataset` of `(inputs, labels)`, all int32. Inputs are a dict of `input_ids`,
            `token_type_ids`, `attention_mask` (B, L) and `masked_lm_positions` (B, P). Labels are
            the ids there (B, P), 0 where there is none; with next sentence prediction a dict, as
            `BertForPreTraining` calls its outputs, with `seq_relationship_logits` (B,) too.
        """
        import tensorflow as tf

        from tf_transformer.data.masking import mask_tokens

        tokenizer = self._tokenizer
        special = list(tokenizer.special_tokens.values())
        random_ids = np.setdiff1d(np.arange(tokenizer.vocab_size, dtype=np.int32), special)
        is_ordinary = np.isin(np.arange(tokenizer.vocab_size), random_ids)

        def hide(ids, types, label, seed):
            masked = mask_tokens(
                ids,
                tf.gather(is_ordinary, ids),
                seed,
                mask_id=tokenizer.mask_id,
                random_ids=random_ids,
                continues_word=(
                    None if self._continues_word is None else tf.gather(self._continues_word, ids)
                ),
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
            return inputs, {
                "prediction_logits": masked.labels,
                "seq_relationship_logits": label,
            }

        shapes = ((None, None), (None, None), (None,), (2,))
        signature = tuple(tf.TensorSpec(shape, tf.int32) for shape in shapes)
        return epochs_dataset(self, signature, first_epoch, first_step, epochs, hide)

    def _plan(self, rng):
        """The rows of an epoch, as (ids, where the second text begins, label), and its batches.

        A batch is a bucket length with the indices of its rows.
        """
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
