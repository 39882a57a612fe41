"""Training a sentence encoder on pairs of texts, and scoring its retrieval.

Axes: Q queries, N documents, D width.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.batches import prefetched
from tf_transformer.errors import ArgumentError
from tf_transformer.models.bert.sentence_encoder import TwoTowers
from tf_transformer.models.bert.text_inputs import pad_segments
from tf_transformer.training.runs.fine_tuning import (
    check_model,
    fine_tuning_optimizer,
    token_ids,
)


def train_pairs(
    encoder, tokenizer, pairs, settings, *, temperature=0.05, negatives=None, **fit_options
):
    """Train a sentence encoder with `model.fit`, so that it finds the document of a query.

    Args:
        encoder: `SentenceEncoder`; it is changed.
        tokenizer: its `GraphTokenizer`.
        pairs: list of (query, document), strings.
        settings: `FineTuning`; with larger batches there are more negatives.
        temperature: see `TwoTowers`.
        negatives: None, or for each pair a list of hard negatives, all of the same length, see
            `hard_negatives`.
        fit_options: further arguments of `model.fit`: callbacks, verbose.

    Returns:
        Keras `History`: loss, and accuracy among the documents of a batch.

    Raises:
        ValueError: If there are fewer than two pairs or one pair per batch, `max_length` exceeds
            the model's positions, or the negatives do not match the pairs.

    Example:
        >>> import tempfile, pathlib
        >>> from tf_transformer.bert import BertConfig, SentenceEncoder, read_tokenizer
        >>> from tf_transformer.training import FineTuning
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> encoder = SentenceEncoder(BertConfig(7, 8, 1, 2, 9))
        >>> settings = FineTuning(epochs=1, max_length=9)
        >>> pairs = [("a", "a a"), ("b", "b b")]
        >>> history = train_pairs(encoder, read_tokenizer(folder), pairs, settings, verbose=0)
        >>> sorted(history.history)
        ['accuracy', 'loss']
    """
    if len(pairs) < 2:
        raise ArgumentError("pairs", "at least 2", len(pairs))
    if settings.batch_size < 2 and negatives is None:
        raise ArgumentError(
            "batch_size",
            "at least 2, since the other documents of a batch are the negatives",
            settings.batch_size,
        )
    check_model(encoder, tokenizer, settings)
    each = set() if negatives is None else {len(found) for found in negatives}
    if negatives is not None and (len(negatives) != len(pairs) or len(each) != 1 or 0 in each):
        raise ArgumentError(
            "negatives",
            f"equally many for each of the {len(pairs)} pairs",
            f"{len(negatives)} lists of {sorted(each)}",
        )
    size = min(settings.batch_size, len(pairs))
    steps = len(pairs) // size  # a last batch with few negatives would be too easy
    columns = [token_ids(tokenizer, side, settings.max_length) for side in zip(*pairs, strict=True)]
    if negatives is not None:
        flat = [text for found in negatives for text in found]
        ids = token_ids(tokenizer, flat, settings.max_length)
        columns.append(tf.RaggedTensor.from_uniform_row_length(ids, len(negatives[0])))

    def inputs(queries, documents, *wrong):
        sides = [queries, documents, *(ids.merge_dims(0, 1) for ids in wrong)]
        return (tuple(pad_segments(tokenizer, [side]) for side in sides),)

    keras.utils.set_random_seed(settings.seed)  # also of the order
    data = tf.data.Dataset.from_tensor_slices(tuple(columns))
    data = data.shuffle(len(pairs), settings.seed).ragged_batch(size, drop_remainder=True)
    towers = TwoTowers(encoder, temperature=temperature)
    towers.compile(
        fine_tuning_optimizer(settings, steps),
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        jit_compile=False,  # every length would be recompiled
    )
    return towers.fit(
        prefetched(data.map(inputs)), epochs=settings.epochs, shuffle=False, **fit_options
    )


def hard_negatives(query_vectors, document_vectors, own, count=1, first=1):
    """Find the nearest wrong documents for each query.

    Args:
        query_vectors: float array (Q, D).
        document_vectors: float array (N, D).
        own: list of Q sets of int, the rows of each query's documents.
        count: int, the number of documents per query.
        first: int, the number of nearest wrong documents to skip, some of which may be unmarked
            correct ones.

    Returns:
        int array (Q, count), rows of documents.

    Raises:
        ValueError: If there are too few documents.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> hard_negatives(vectors[:1], vectors + 0.1, [{0}], first=0).tolist()
        [[1]]
    """
    for n, right in enumerate(own):
        if len(document_vectors) - len(right) < first + count:
            raise ArgumentError(
                "count, first",
                f"{first + count} wrong documents for each query",
                f"{len(document_vectors) - len(right)} for query {n}",
            )
    found = []
    for n, scores in _scores(query_vectors, document_vectors):
        wanted = first + count + len(own[n])
        best = np.argsort(-scores, kind="stable")[:wanted]
        found.append([row for row in best if row not in own[n]][first : first + count])
    return np.array(found)


def retrieval_scores(query_vectors, document_vectors, own, at=(1, 5, 10)):
    """Recall and mean reciprocal rank of the documents that vectors find.

    Args:
        query_vectors: float array (Q, D).
        document_vectors: float array (N, D).
        own: list of Q sets of int, the rows of each query's documents.
        at: ints k.

    Returns:
        dict: `recall@k`, the share of queries with a correct document among the first k; `mrr`, the
        mean of 1 / rank of the first correct one. Ties and NaN count against the model.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> retrieval_scores(vectors[:2], vectors[[1, 0, 2]], [{1}, {1}], at=(1,))
        {'recall@1': 0.5, 'mrr': 0.6666666666666666}
    """
    ranks = []
    for n, scores in _scores(query_vectors, document_vectors):
        right = sorted(own[n])
        wrong = np.delete(scores, right)
        ranks.append(1 + int((~(wrong < scores[right].max())).sum()))  # NaN is no hit
    ranks = np.array(ranks)
    found = {f"recall@{k}": float((ranks <= k).mean()) for k in at}
    return {**found, "mrr": float((1 / ranks).mean())}


def _scores(queries, documents, at_once=256):
    """Yield the number and the scores (N,) of each query, computed in groups of queries."""
    for start in range(0, len(queries), at_once):
        block = queries[start : start + at_once] @ documents.T
        yield from enumerate(block, start)
