"""Loss and metrics for tokens or classes, scores of translations, and R-Drop.

Axes: B batch, T target length, V vocabulary or classes.
"""

import math
import re

import keras
import tensorflow as tf

from tf_transformer.distribution import current_workers, global_mean, with_global_value
from tf_transformer.errors import ArgumentError, MissingPackage, check, check_texts
from tf_transformer.functional.labels import (
    check_ignore_class,
    ignore_class_of,
    read_labels,
    smoothed_cross_entropy,
    symmetric_divergence,
)
from tf_transformer.models.base_model import BaseModel

_IDEOGRAPHS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_SYLLABLES = re.compile("[\u3040-\u30ff\uac00-\ud7af]")  # kana and hangul


@keras.saving.register_keras_serializable(package="tf_transformer")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy against (1 - smoothing) * one-hot + smoothing / V, mean over real labels.

    "Attention Is All You Need", section 5.4. Ignored labels, such as padding, count neither in the
    sum nor in the number by which it is divided.

    Args:
        label_smoothing: float in [0, 1).
        ignore_class: the label to ignore: an int, or None to ignore none, as in Keras. "auto"
            depends on the task: 0, the padding, for tokens (B, T); -1 for classes (B,); -100, as
            in Hugging Face's data, for a `BertForTokenClassification` that is compiled with this
            loss, since 0 is a class there.
        reduction: see `keras.losses.Loss`.

    Call arguments:
        y_true: integer tensor (B, T) or (B, T, 1), token ids; or (B,) or (B, 1), classes. float32
            and float64 are accepted if the numbers are whole.
        y_pred: float tensor (B, T, V) or (B, V), logits. Labels blocked by its Keras mask are
            ignored.
        sample_weight: None, or float tensor: (B,) or (B, 1) for rows, even if B = T; or of the
            labels' shape. As in Keras, it does not change the number by which the sum is divided.

    Returns:
        Scalar: the sum over real labels divided by their number: the global one, under a
        distribution strategy or with several `Workers`, so that loss and gradients are the same as
        on one device.

    Raises:
        ValueError: If `label_smoothing` is outside [0, 1), `ignore_class` has another type, the
            shapes of labels, logits and weights do not match, or labels are one-hot. In eager mode
            also if a label that is not ignored is not a whole number from 0 to V - 1.
        tf.errors.InvalidArgumentError: For such a label in a graph, as in `fit`. XLA's programs
            cannot raise an error; there the loss is NaN.

    Example:
        >>> loss = SmoothedCrossentropy(label_smoothing=0.0)
        >>> round(float(loss(tf.constant([[1, 0]]), tf.zeros((1, 2, 4)))), 4)  # log 4
        1.3863
    """

    def __init__(
        self, label_smoothing=0.1, name="smoothed_crossentropy", ignore_class="auto", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        check(0 <= label_smoothing < 1, "label_smoothing", "0 <= value < 1", label_smoothing)
        self.label_smoothing = label_smoothing
        self.ignore_class = check_ignore_class(ignore_class)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras would round labels to its float type, and divide by the number of all labels that
        # the mask allows, including ignored ones.
        with tf.name_scope(self.name):
            labels = read_labels(y_true, y_pred, self.ignore_class, sample_weight)
            logits = tf.cast(y_pred, tf.float32)
            values = smoothed_cross_entropy(labels.ids, logits, self.label_smoothing)  # (B, T)
            values = tf.math.multiply_no_nan(values, labels.weights)
            if self.reduction in (None, "none"):
                return values
            if self.reduction == "sum":
                return with_global_value(tf.reduce_sum(values) * current_workers().count)
            by_weight = self.reduction == "mean_with_sample_weight"
            return global_mean(values, labels.weights if by_weight else labels.real)

    def get_config(self):
        own = {"label_smoothing": self.label_smoothing, "ignore_class": self.ignore_class}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="tf_transformer")
class _MeanOverLabels(keras.metrics.Metric):
    """Mean of a value per label over all batches, replicas and workers."""

    def __init__(self, name, ignore_class, **kwargs):
        super().__init__(name=name, **kwargs)
        self.ignore_class = check_ignore_class(ignore_class)
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = read_labels(y_true, y_pred, self.ignore_class, sample_weight)
        values = tf.math.multiply_no_nan(self._values(labels.ids, y_pred), labels.weights)
        sums = [tf.reduce_sum(values), tf.reduce_sum(labels.weights)]
        total, count = current_workers().sum(sums)
        self.total.assign_add(total)
        self.count.assign_add(count)

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}


@keras.saving.register_keras_serializable(package="tf_transformer")
class MaskedAccuracy(_MeanOverLabels):
    """Share of the real labels whose most likely prediction is correct; never one with NaN.

    A float32 scalar over all batches since the last reset, of all `Workers`; 0 before the first.
    For arguments and errors, see `TokenCrossentropy`.

    Example:
        >>> metric = MaskedAccuracy()
        >>> float(metric(tf.constant([[1, 0]]), tf.constant([[[0.0, 1.0], [0.0, 1.0]]])))
        1.0
    """

    def __init__(self, name="accuracy", ignore_class="auto", **kwargs):
        super().__init__(name, ignore_class, **kwargs)

    def _values(self, ids, y_pred):
        hits = tf.equal(tf.argmax(y_pred, axis=-1, output_type=tf.int32), ids)
        # `argmax` of NaN is 0. In a step that computes the loss, this costs nothing.
        losses = smoothed_cross_entropy(ids, tf.cast(y_pred, tf.float32), 0.0)
        return tf.cast(hits & ~tf.math.is_nan(losses), tf.float32)

    def result(self):
        return tf.math.divide_no_nan(self.total.value, self.count.value)


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenCrossentropy(_MeanOverLabels):
    """Cross-entropy per real label, which does not depend on how the data are batched.

    Keras reports a loss as the mean of the batches' means, in which the tokens of a batch with
    little text count more. In a training step, this metric shares the computations of
    `SmoothedCrossentropy`.

    A float32 scalar in nats over all batches since the last reset, of all `Workers`; NaN before the
    first label. For arguments and errors, see `SmoothedCrossentropy`; here the sum is divided by
    the sum of the weights, as in Keras's metrics.

    Example:
        >>> metric = TokenCrossentropy()
        >>> metric.update_state([[1, 2, 3]], tf.zeros((1, 3, 4)))
        >>> metric.update_state([[1, 0, 0]], tf.constant([[[0.0, 9.0, 0.0, 0.0]] * 3]))
        >>> round(float(metric.result()), 4)  # 3 / 4 log 4: the last of the four tokens is certain
        1.0398
    """

    def __init__(self, label_smoothing=0.0, name="token_loss", ignore_class="auto", **kwargs):
        super().__init__(name, ignore_class, **kwargs)
        check(0 <= label_smoothing < 1, "label_smoothing", "0 <= value < 1", label_smoothing)
        self.label_smoothing = label_smoothing

    def _values(self, ids, y_pred):
        return smoothed_cross_entropy(ids, tf.cast(y_pred, tf.float32), self.label_smoothing)

    def result(self):
        count = self.count.value
        return tf.where(count > 0, tf.math.divide_no_nan(self.total.value, count), math.nan)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Perplexity(TokenCrossentropy):
    """exp of the cross-entropy per real token; a float32 scalar, see `TokenCrossentropy`.

    The mean of the batches' perplexities and exp of Keras's loss differ and depend on the batches.

    Example:
        >>> metric = Perplexity()
        >>> round(float(metric([[1, 2, 0]], tf.zeros((1, 3, 4)))), 4)
        4.0
    """

    def __init__(self, name="perplexity", ignore_class="auto", **kwargs):
        super().__init__(0.0, name, ignore_class, **kwargs)

    def result(self):
        return tf.exp(super().result())

    def get_config(self):
        config = super().get_config()
        del config["label_smoothing"]
        return config


def score_translations(hypotheses, references, language):
    """Compute BLEU and chrF of a whole test set, with all references of every sentence.

    Papineni et al. 2002; Popović 2015; Post 2018 for the signature that makes scores comparable.
    Returns a dict with `bleu`, `bleu_signature`, `chrf`, `chrf_signature` and `sentences`.

    Args:
        hypotheses: list of str, the translations.
        references: list of lists of str, at least one for each hypothesis; their number may
            differ from sentence to sentence.
        language: str, code of the target language, or "" if unknown: "zh", "ja" and "ko" are split
            into characters, all others with sacreBLEU's default "13a", unless the references are
            mostly written in the scripts of these three.

    Raises:
        ValueError: If the numbers do not match, there is no sentence, a sentence has no reference,
            or a string is given in place of a list.
        ImportError: If sacreBLEU is not installed.

    Example:
        >>> round(score_translations(["我爱你。"], [["我爱你。", "我愛你。"]], "zh")["bleu"])
        100
    """
    for name, texts in (("hypotheses", hypotheses), *(("references", row) for row in references)):
        check_texts(name, texts)
    if len(hypotheses) != len(references) or not hypotheses:
        expected = "as many lists of references as translations, and at least one"
        got = f"{len(hypotheses)} and {len(references)}"
        raise ArgumentError("hypotheses, references", expected, got)
    if not all(references):
        got = f"none for sentence {[bool(row) for row in references].index(False)}"
        raise ArgumentError("references", "at least one for each sentence", got)
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise MissingPackage('scoring needs sacreBLEU: pip install -e ".[train]"') from error
    tokenize = {"zh": "zh", "ja": "char", "ko": "char"}.get(language) or _tokenizer(references)
    most = max(len(row) for row in references)
    # sacreBLEU expects one list per reference index; None marks a missing reference.
    columns = [[row[i] if i < len(row) else None for row in references] for i in range(most)]
    bleu, chrf = BLEU(tokenize=tokenize), CHRF()
    return {
        "bleu": round(bleu.corpus_score(hypotheses, columns).score, 2),
        "bleu_signature": str(bleu.get_signature()),
        "chrf": round(chrf.corpus_score(hypotheses, columns).score, 2),
        "chrf_signature": str(chrf.get_signature()),
        "sentences": len(hypotheses),
    }


def _tokenizer(references):
    """Choose by script: 13a needs spaces between words, and could score a good translation 0."""
    text = "".join("".join(row) for row in references)
    ideographs, syllables = (len(part.findall(text)) for part in (_IDEOGRAPHS, _SYLLABLES))
    if 2 * (ideographs + syllables) <= len("".join(text.split())):
        return "13a"
    return "char" if 4 * syllables > ideographs else "zh"


@keras.saving.register_keras_serializable(package="tf_transformer")
class RDrop(BaseModel):
    """Trains a model on two dropout passes per batch and on their agreement.

    loss + alpha / 4 * (KL(P1 || P2) + KL(P2 || P1)), Liang et al. 2021 "R-Drop: Regularized Dropout
    for Neural Networks", equations 2 to 4, divided by 2: P1 and P2 are the predictions for the same
    row with different dropout, `loss` is the mean over both, and the divergences are averaged over
    the labels that the loss does not ignore. A step takes twice the time. Validation, prediction
    and weight files are those of the inner model, so training can resume with or without R-Drop.

    Args:
        model: a `keras.Model` that returns logits (B, T, V) or (B, V).
        alpha: float, 5 for translation in the paper; below 0 it is a ValueError.

    Example:
        >>> inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model = RDrop(inner, alpha=5.0)
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> history = model.fit(np.ones((4, 2)), np.ones((4,), "int32"), verbose=0)
    """

    def __init__(self, model, alpha=5.0, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # inputs may be ids
        check(alpha >= 0, "alpha", "at least 0", alpha)
        self.model, self.alpha = model, alpha

    @property
    def ignore_class(self):
        """The inner model's."""
        return getattr(self.model, "ignore_class", "auto")

    @property
    def input_signature(self):
        """The inner model's."""
        return getattr(self.model, "input_signature", None)

    def build(self, input_shape=None):
        if isinstance(self.model, BaseModel) and not self.model.built:
            self.model.build(input_shape)  # Keras builds others when it calls them

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def export(self, *args, **kwargs):
        self.model.export(*args, **kwargs)

    @property
    def _default_save_signature(self):
        return self.model._default_save_signature

    def save_weights(self, *args, **kwargs):
        self.model.save_weights(*args, **kwargs)

    def load_weights(self, *args, **kwargs):
        self.model.load_weights(*args, **kwargs)

    def train_step(self, data):
        def twice(x):
            return None if x is None else tf.concat([x, x], 0)  # None: no sample weights

        return super().train_step(tf.nest.map_structure(twice, data))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if not training:
            return loss
        divergence = symmetric_divergence(tf.cast(y_pred, tf.float32))
        labels = read_labels(y, y_pred, ignore_class_of(self.loss), sample_weight)
        real, weights = (tf.split(x, 2)[0] for x in (labels.real, labels.weights))
        divergence = tf.math.multiply_no_nan(divergence, weights)
        return loss + self.alpha / 4 * global_mean(divergence, real)

    def get_config(self):
        model = keras.saving.serialize_keras_object(self.model)
        return {**super().get_config(), "model": model, "alpha": self.alpha}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        model = keras.saving.deserialize_keras_object(config.pop("model"), custom_objects)
        return cls(model, **config)
