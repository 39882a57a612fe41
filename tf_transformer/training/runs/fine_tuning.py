"""Fine-tuning a pretrained BERT: to classify texts, or as an encoder that finds texts.

Axes: B batch, T length, Q queries, N documents, D width.
"""

import dataclasses
import hashlib

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.batches import prefetched
from tf_transformer.distribution import current_workers, lost_workers_named, own_rows
from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.tensors import check_range
from tf_transformer.models.base_model import check_vocabulary
from tf_transformer.models.bert.sentence_encoder import TwoTowers
from tf_transformer.models.bert.text_inputs import pad_segments, special_count
from tf_transformer.training.losses import MaskedAccuracy, SmoothedCrossentropy
from tf_transformer.training.optimizers import (
    LayerwiseAdamW,
    WarmUpLinearDecay,
    accumulate_gradients,
)
from tf_transformer.training.runs.presets import Settings

AT_ONCE = 1024  # texts tokenized at once, to limit memory


@dataclasses.dataclass(frozen=True)
class FineTuning(Settings):
    """All settings of a fine-tuning run other than the model and the data.

    Devlin et al. 2019, section 4.1 and appendix A.3, with layer-wise learning rates. Raises a
    ValueError if a setting has another type or is out of range.

    Args:
        epochs, batch_size: ints, passes over the training texts, and texts per step.
        learning_rate: float, the peak rate, used for the head.
        warmup_share: float in [0, 1], the share of all steps in which the rate rises.
        layer_decay, weight_decay: floats, see `LayerwiseAdamW`.
        max_length: int, the maximum number of tokens; longer texts are truncated.
        seed: int, seed for the order of the texts. Head and dropout depend on the seed set when the
            model was created: `keras.utils.set_random_seed`.
        accumulate: int, the parts in which the gradient of a batch is computed, to save memory; see
            `accumulate_gradients`.

    Example:
        >>> FineTuning(epochs=3).batch_size
        32
    """

    epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 1e-4
    warmup_share: float = 0.1
    layer_decay: float = 0.95
    weight_decay: float = 0.01
    max_length: int = 128
    seed: int = 1
    accumulate: int = 1


def fine_tune(model, tokenizer, data, settings, **fit_options):
    """Train a classifier with `model.fit`.

    The gradient of each variable is clipped to a norm of 1; BERT's code clips the global norm. With
    several `Workers` each trains on its share of every batch. Returns the Keras `History`: accuracy
    and loss of training and validation.

    Args:
        model: `BertForSequenceClassification`, or a `Distiller` of two.
        tokenizer: its `GraphTokenizer`.
        data: `LabelledTexts` with the model's labels.
        settings: `FineTuning`.
        fit_options: further arguments of `model.fit`: callbacks, verbose.

    Raises:
        ValueError: If the model has different labels, a `problem_type` other than single-label
            classification, a different vocabulary or fewer positions than `max_length`, or if there
            are no texts to train on.
        ConnectionError: If one of several workers is lost.

    Example:
        >>> from pathlib import Path
        >>> from tf_transformer import bert
        >>> from tf_transformer.data import LabelledTexts
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> data = LabelledTexts(("a", "b"), [("a a", 0), ("b a b", 1)], [("a", 0)], [("b", 1)])
        >>> config = bert.BertConfig(7, 8, 1, 2, 9, labels=data.labels)
        >>> model, tokenizer = bert.BertForSequenceClassification(config), bert.read_tokenizer(".")
        >>> history = fine_tune(model, tokenizer, data, FineTuning(epochs=2), verbose=0)
        >>> sorted(history.history)
        ['accuracy', 'loss', 'val_accuracy', 'val_loss']
    """
    _check(model, tokenizer, data, settings)
    workers = current_workers()
    if workers.count > 1:
        # Not the seeds of dropout, which may differ between workers.
        weights = [hashlib.sha256(np.asarray(w)).hexdigest() for w in model.weights]
        parts = [*data.train, None, *data.validation, None, *data.test]
        workers.agree(None, settings=dataclasses.asdict(settings), data=parts, model=weights)
    steps = -(-len(data.train) // settings.batch_size)
    keras.utils.set_random_seed(settings.seed)
    model.compile(
        fine_tuning_optimizer(settings, steps),
        SmoothedCrossentropy(label_smoothing=0.0),
        metrics=[MaskedAccuracy()],
        jit_compile=False,  # every length would be recompiled
    )
    accumulate_gradients(model, settings.accumulate)
    train = own_rows(text_batches(tokenizer, data.train, settings, shuffle=True))
    rows = data.validation
    validation = own_rows(text_batches(tokenizer, rows, settings)) if rows else None
    fit_options |= {"epochs": settings.epochs, "shuffle": False}  # the data set shuffles
    with lost_workers_named():
        return model.fit(train, validation_data=validation, **fit_options)


def text_batches(tokenizer, rows, settings, shuffle=False):
    """Return batches of texts as model inputs, padded to the longest text of the batch.

    Args:
        tokenizer: `GraphTokenizer`.
        rows: list of (text, class index).
        settings: `FineTuning`.
        shuffle: bool, whether to reshuffle the texts for every pass.

    Returns:
        `tf.data.Dataset` of `(inputs, labels)`: see `text_inputs`; int32 (B,).

    Example:
        >>> from pathlib import Path
        >>> from tf_transformer.bert import read_tokenizer
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> batches = text_batches(read_tokenizer("."), [("a", 0), ("a b", 1)], FineTuning())
        >>> next(iter(batches))[0]["input_ids"].numpy().tolist()
        [[2, 5, 3, 0], [2, 5, 6, 3]]
    """
    texts, labels = zip(*rows, strict=True)
    ids = token_ids(tokenizer, texts, settings.max_length)
    dataset = tf.data.Dataset.from_tensor_slices((ids, tf.constant(labels, tf.int32)))
    if shuffle:
        dataset = dataset.shuffle(len(rows), settings.seed)
    dataset = dataset.ragged_batch(settings.batch_size)
    return prefetched(dataset.map(lambda ids, labels: (pad_segments(tokenizer, [ids]), labels)))


def token_ids(tokenizer, texts, max_length):
    """Tokenize texts once; doing it in every pass would copy the tables each time."""
    parts = [texts[first : first + AT_ONCE] for first in range(0, len(texts), AT_ONCE)]
    most = max_length - special_count(tokenizer)
    return tf.concat([tokenizer.encode(part)[:, :most] for part in parts], 0)


def fine_tuning_optimizer(settings, steps):
    """Create AdamW with learning rates for fine-tuning."""
    total = steps * settings.epochs
    warmup = min(round(settings.warmup_share * total), total - 1)
    return LayerwiseAdamW(
        WarmUpLinearDecay(settings.learning_rate, warmup, total),
        weight_decay=settings.weight_decay,
        layer_decay=settings.layer_decay,
        clipnorm=1.0,
    )


def check_model(model, tokenizer, settings):
    """Check that texts fit the model."""
    most = model.config.max_length
    expected = f"at most {most}, the positions of the model"
    check(settings.max_length <= most, "max_length", expected, settings.max_length)
    check_vocabulary(model, tokenizer)


def _check(trained, tokenizer, data, settings):
    model = getattr(trained, "student", trained)
    check_model(model, tokenizer, settings)
    if settings.accumulate > 1 and model is not trained:
        kind = type(trained).__name__
        expected = f"1 with a {kind}, whose other losses are not means over labels"
        raise ArgumentError("accumulate", expected, settings.accumulate)
    if model.config.labels != data.labels:
        got = f"those of the model, {model.config.labels}"
        remedy = "Pass them to from_pretrained(..., labels=...)."
        raise ArgumentError("labels", f"those of the data, {data.labels}", got, remedy)
    if model.config.answers != "softmax":
        expected = "single_label_classification, or None, since each text of the data has one class"
        remedy = "Pass problem_type=None and new_head=True to from_pretrained, or compile the "
        remedy += "model with a loss of your own."
        raise ArgumentError("problem_type", expected, f"{model.config.problem_type!r}", remedy)
    check(data.train, "data", "texts to train on", "none")


def train_pairs(
    encoder, tokenizer, pairs, settings, *, temperature=0.05, negatives=None, **fit_options
):
    """Train a sentence encoder with `model.fit`, so that it finds the document of a query.

    Returns the Keras `History`: loss, and accuracy among the documents of a batch. Raises a
    ValueError if there are fewer than two pairs or one pair per batch, `max_length` exceeds the
    model's positions, or the negatives do not match the pairs.

    Args:
        encoder: `SentenceEncoder`; it is changed.
        tokenizer: its `GraphTokenizer`.
        pairs: list of (query, document), strings.
        settings: `FineTuning`; with larger batches there are more negatives.
        temperature: see `TwoTowers`.
        negatives: None, or for each pair a list of hard negatives, all of the same length, see
            `hard_negatives`.
        fit_options: further arguments of `model.fit`: callbacks, verbose.

    Example:
        >>> from pathlib import Path
        >>> from tf_transformer.bert import BertConfig, SentenceEncoder, read_tokenizer
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> pairs, settings = [("a", "a a"), ("b", "b b")], FineTuning(epochs=1, max_length=9)
        >>> encoder = SentenceEncoder(BertConfig(7, 8, 1, 2, 9))
        >>> history = train_pairs(encoder, read_tokenizer("."), pairs, settings, verbose=0)
        >>> sorted(history.history)
        ['accuracy', 'loss']
    """
    check(len(pairs) >= 2, "pairs", "at least 2", len(pairs))
    if settings.batch_size < 2 and negatives is None:
        expected = "at least 2, since the other documents of a batch are the negatives"
        raise ArgumentError("batch_size", expected, settings.batch_size)
    check_model(encoder, tokenizer, settings)
    each = set() if negatives is None else {len(found) for found in negatives}
    if negatives is not None and (len(negatives) != len(pairs) or len(each) != 1 or 0 in each):
        expected = f"equally many for each of the {len(pairs)} pairs"
        raise ArgumentError("negatives", expected, f"{len(negatives)} lists of {sorted(each)}")
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
    data = prefetched(data.map(inputs))
    return towers.fit(data, epochs=settings.epochs, shuffle=False, **fit_options)


def hard_negatives(query_vectors, document_vectors, own, count=1, first=1):
    """Find the nearest wrong documents for each query.

    Returns an int array (Q, count), rows of documents. Raises a ValueError if there are too few
    documents, a vector is not finite, or a number is out of range.

    Args:
        query_vectors, document_vectors: float arrays (Q, D), (N, D).
        own: list of Q sets of int, the rows of each query's documents.
        count: int, the number of documents per query.
        first: int, the number of nearest wrong documents to skip, some of which may be unmarked
            correct ones.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> hard_negatives(vectors[:1], vectors + 0.1, [{0}], first=0).tolist()
        [[1]]
    """
    check_range("count", count, 1)
    check_range("first", first, 0)
    _check_own(query_vectors, document_vectors, own)
    for n, right in enumerate(own):
        wrong = len(document_vectors) - len(right)
        if wrong < first + count:
            expected = f"{first + count} wrong documents for each query"
            raise ArgumentError("count, first", expected, f"{wrong} for query {n}")
    found = []
    for n, scores in _scores(query_vectors, document_vectors):
        is_finite = np.isfinite(scores).all()
        check(is_finite, "query_vectors, document_vectors", "finite numbers", f"others, query {n}")
        wanted = first + count + len(own[n])
        best = np.argsort(-scores, kind="stable")[:wanted]
        found.append([row for row in best if row not in own[n]][first : first + count])
    return np.array(found)


def retrieval_scores(query_vectors, document_vectors, own, at=(1, 5, 10)):
    """Recall and mean reciprocal rank of the documents that vectors find.

    Args:
        query_vectors, document_vectors, own: see `hard_negatives`.
        at: ints k.

    Returns:
        dict: `recall@k`, the share of queries with a correct document among the first k; `mrr`, the
        mean of 1 / rank of the first correct one. Ties and NaN count against the model.

    Raises:
        ValueError: If a query has no document, or `own` has other queries or rows.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> retrieval_scores(vectors[:2], vectors[[1, 0, 2]], [{1}, {1}], at=(1,))
        {'recall@1': 0.5, 'mrr': 0.6666666666666666}
    """
    _check_own(query_vectors, document_vectors, own)
    ranks = []
    for n, scores in _scores(query_vectors, document_vectors):
        right = sorted(own[n])
        wrong = np.delete(scores, right)
        ranks.append(1 + int((~(wrong < scores[right].max())).sum()))  # NaN is no hit
    ranks = np.array(ranks)
    found = {f"recall@{k}": float((ranks <= k).mean()) for k in at}
    return {**found, "mrr": float((1 / ranks).mean())}


def _check_own(queries, documents, own):
    """Check that each query has documents, by their rows."""
    fits = len(own) == len(queries) and all(own)
    fits = fits and all(0 <= row < len(documents) for rows in own for row in rows)
    expected = f"for each of {len(queries)} queries one or more rows below {len(documents)}"
    check(fits, "own", expected, f"{len(own)} sets, or other rows")


def _scores(queries, documents, at_once=256):
    """Yield the number and the scores (N,) of each query, computed in groups of queries."""
    for start in range(0, len(queries), at_once):
        block = queries[start : start + at_once] @ documents.T
        yield from enumerate(block, start)
