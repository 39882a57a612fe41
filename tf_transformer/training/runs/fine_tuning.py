"""Fine-tuning a pretrained BERT for text classification.

Axes: B batch, T length.
"""

import dataclasses
import hashlib

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.batches import prefetched
from tf_transformer.distribution import current_workers, lost_workers_named, own_rows
from tf_transformer.errors import ArgumentError
from tf_transformer.models.bert.text_inputs import pad_segments
from tf_transformer.models.sizes import check_vocabulary
from tf_transformer.training.accumulate_gradients import accumulate_gradients
from tf_transformer.training.losses import MaskedAccuracy, SmoothedCrossentropy
from tf_transformer.training.optimizers import LayerwiseAdamW, WarmUpLinearDecay
from tf_transformer.training.runs.presets import Settings

AT_ONCE = 1024  # texts tokenized at once, to limit memory


@dataclasses.dataclass(frozen=True)
class FineTuning(Settings):
    """All settings of a fine-tuning run other than the model and the data.

    Devlin et al. 2019, section 4.1 and appendix A.3, with layer-wise learning rates.

    Args:
        epochs: int, passes over the training texts.
        batch_size: int, texts per step.
        learning_rate: float, the peak rate, used for the head.
        warmup_share: float in [0, 1], the share of all steps in which the rate rises.
        layer_decay: float in (0, 1], see `LayerwiseAdamW`.
        weight_decay: float, see `LayerwiseAdamW`.
        max_length: int, the maximum number of tokens; longer texts are truncated.
        seed: int, seed for the order of the texts. Head and dropout depend on the seed set when the
            model was created: `keras.utils.set_random_seed`.
        accumulate: int, the parts in which the gradient of a batch is computed, to save memory; see
            `accumulate_gradients`.

    Raises:
        ValueError: If a setting has another type or is out of range.

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
    several `Workers` each trains on its share of every batch.

    Args:
        model: `BertForSequenceClassification`, or a `Distiller` of two.
        tokenizer: its `GraphTokenizer`.
        data: `LabelledTexts` with the model's labels.
        settings: `FineTuning`.
        fit_options: further arguments of `model.fit`: callbacks, verbose.

    Returns:
        Keras `History`; accuracy and loss of training and validation.

    Raises:
        ValueError: If the model has different labels, a `problem_type` other than single-label
            classification, a different vocabulary or fewer positions than `max_length`, or if there
            are no texts to train on.
        ConnectionError: If one of several workers is lost.

    Example:
        >>> import tempfile, pathlib
        >>> from tf_transformer.data import LabelledTexts
        >>> from tf_transformer.models.bert import BertConfig, BertForSequenceClassification
        >>> from tf_transformer.models.bert.text_inputs import read_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> data = LabelledTexts(("a", "b"), [("a a", 0), ("b a b", 1)], [("a", 0)], [("b", 1)])
        >>> model = BertForSequenceClassification(BertConfig(7, 8, 1, 2, 9, labels=data.labels))
        >>> settings = FineTuning(epochs=2)
        >>> history = fine_tune(model, read_tokenizer(folder), data, settings, verbose=0)
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
    validation = None
    if data.validation:
        validation = own_rows(text_batches(tokenizer, data.validation, settings))
    with lost_workers_named():
        return model.fit(
            own_rows(text_batches(tokenizer, data.train, settings, shuffle=True)),
            epochs=settings.epochs,
            validation_data=validation,
            shuffle=False,  # the data set shuffles
            **fit_options,
        )


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
        >>> import tempfile, pathlib
        >>> from tf_transformer.models.bert.text_inputs import read_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> rows = [("a", 0), ("a b", 1)]
        >>> inputs, labels = next(iter(text_batches(read_tokenizer(folder), rows, FineTuning())))
        >>> inputs["input_ids"].numpy().tolist(), labels.numpy().tolist()
        ([[2, 5, 3, 0], [2, 5, 6, 3]], [0, 1])
    """
    texts, labels = zip(*rows, strict=True)
    ids = token_ids(tokenizer, texts, settings.max_length)
    dataset = tf.data.Dataset.from_tensor_slices((ids, tf.constant(labels, tf.int32)))
    if shuffle:
        dataset = dataset.shuffle(len(rows), settings.seed)
    return prefetched(
        dataset.ragged_batch(settings.batch_size).map(
            lambda ids, labels: (pad_segments(tokenizer, [ids]), labels)
        )
    )


def token_ids(tokenizer, texts, max_length):
    """Tokenize texts once; doing it in every pass would copy the tables each time."""
    parts = [texts[first : first + AT_ONCE] for first in range(0, len(texts), AT_ONCE)]
    return tf.concat([tokenizer.encode(part)[:, : max_length - 2] for part in parts], 0)


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
    most = model.config.max_position_embeddings
    if settings.max_length > most:
        raise ArgumentError(
            "max_length", f"at most {most}, the positions of the model", settings.max_length
        )
    check_vocabulary(model, tokenizer)


def _check(trained, tokenizer, data, settings):
    model = getattr(trained, "student", trained)
    check_model(model, tokenizer, settings)
    if settings.accumulate > 1 and model is not trained:
        raise ArgumentError(
            "accumulate",
            f"1 with a {type(trained).__name__}, whose other losses are not means over labels",
            settings.accumulate,
        )
    if model.config.labels != data.labels:
        raise ArgumentError(
            "labels",
            f"those of the data, {data.labels}",
            f"those of the model, {model.config.labels}",
            "Pass them to from_pretrained(..., labels=...).",
        )
    if model.config.answers != "softmax":
        raise ArgumentError(
            "problem_type",
            "single_label_classification, or None, since each text of the data has one class",
            f"{model.config.problem_type!r}",
            "Pass problem_type=None and new_head=True to from_pretrained, or compile the "
            "model with a loss of your own.",
        )
    if not data.train:
        raise ArgumentError("data", "texts to train on", "none")
