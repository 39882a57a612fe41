"""Batches for training a language model on documents.

Axes: B batch, L bucket length.
"""

import numpy as np

from tf_transformer.data.buckets import Buckets
from tf_transformer.data.epochs_dataset import epochs_dataset
from tf_transformer.errors import ArgumentError


class LanguageModelBatches(Buckets):
    """Documents of token ids, cut into blocks, as a `tf.data` pipeline for `model.fit`.

    A document becomes start token, its tokens, end token. It is cut into blocks of the largest
    length, the last one shorter; the labels of a block are its tokens moved by one, so every token
    but the start is predicted once. For batches and their order see `Buckets`.

    Args:
        documents: list of lists of int token ids, without start or end.
        start_id, end_id: int, ids added before and after.
        lengths: increasing ints, the bucket lengths L.
        tokens_per_batch: int; a bucket's batch has tokens_per_batch / L rows, at least 1.
        seed: int, seed for shuffling.

    Raises:
        ValueError: If there are no documents or the bucket lengths do not increase.

    Example:
        >>> batches = LanguageModelBatches(
        ...     [[5, 6, 7]], start_id=1, end_id=2, lengths=(3,), tokens_per_batch=6
        ... )
        >>> ids, labels = next(batches.epoch(0))
        >>> sorted(ids.tolist()), sorted(labels.tolist())
        ([[1, 5, 6], [7, 0, 0]], [[2, 0, 0], [5, 6, 7]])
    """

    def __init__(self, documents, *, start_id, end_id, lengths, tokens_per_batch, seed=0):
        if not documents:
            raise ArgumentError("documents", "at least one", "none")
        most = max([1, *lengths])
        blocks = []  # with one token more than the block, its last label
        for document in documents:
            tokens = [start_id, *document, end_id]
            blocks += [tokens[at : at + most + 1] for at in range(0, len(tokens) - 1, most)]

        def matrices(rows, length):
            padded = np.zeros((len(rows), length + 1), np.int32)
            for row, block in zip(padded, (blocks[n] for n in rows), strict=True):
                row[: len(block)] = block
            return np.where(padded[:, 1:] > 0, padded[:, :-1], 0), padded[:, 1:]

        super().__init__(
            [len(block) - 1 for block in blocks],
            matrices,
            lengths=lengths,
            tokens_per_batch=tokens_per_batch,
            seed=seed,
        )

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """The same batches as a `tf.data.Dataset`, epoch after epoch.

        Args:
            first_epoch, first_step, epochs: see `epochs_dataset`.

        Returns:
            `tf.data.Dataset` of `(ids, labels)`, int32 (B, L).
        """
        import tensorflow as tf

        ids = tf.TensorSpec((None, None), tf.int32)
        return epochs_dataset(self, (ids, ids), first_epoch, first_step, epochs)
