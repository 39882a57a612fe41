"""BERT with an exit after each layer, and the rule by which texts leave.

Axes: B batch, T length, D hidden size, L layers, C classes, A texts that are still in the batch.
"""

from numbers import Integral, Real
from typing import NamedTuple

import keras
import tensorflow as tf

from tf_transformer.distribution import global_mean
from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.labels import ignore_class_of, read_labels, softened_divergence
from tf_transformer.functional.tensors import in_xla_program
from tf_transformer.models.bert.bert import BertWithHead, dense_inputs
from tf_transformer.models.bert.heads import classifier, classifier_dropout
from tf_transformer.models.bert.sentence_encoder import pool_tokens, read_pooling, write_pooling

TEMPERATURE = 2.0  # of the last exit's predictions, which teach the others


class _Progress(NamedTuple):
    """What the next layer needs, and the answers so far."""

    x: tf.Tensor  # float (A, T, D)
    mask: tf.Tensor  # bool (A, T)
    places: tf.Tensor  # int32 (A,), the rows of the batch
    guess: tf.Tensor  # int32 (A,), the class after the last layer
    streak: tf.Tensor  # int32 (A,), how many layers before it had the same
    logits: tf.Tensor  # float32 (B, C)
    layers: tf.Tensor  # int32 (B,), 0 = no answer yet


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertWithExits(BertWithHead):
    """Predict the class of a text after every layer, so that easy texts can leave early.

    Zhou et al. 2020, "BERT Loses Patience" (PABEE): the pooler is shared, each layer has its own
    classifier. The loss is sum_n n L_n / sum_n n over the exits n = 1..L, as in the paper; metrics
    use the last exit.

    Differs from the paper in two ways (benchmarks/compression/NOTES.md). In training, L_n of a
    lower exit is half the loss on the labels and half the divergence from the last exit, softened
    with temperature 2 (Phuong and Lampert 2019). And there is `pooling="mean"`, since with the
    first token the three lower exits of a fine-tuned MiniLM gave all texts the same class.

    Args:
        config, unpad, architecture: see `Bert`, also for inputs and errors; the config must have a
            pooler, at least two layers and two `labels`, and a `problem_type` for a softmax.
        pooling: what the pooler reads: "cls", the first token, as in BERT; or the "mean" of all
            tokens, as `from_pretrained` finds in the folder of a sentence-transformers model.

    Returns:
        float32 tensor (B, L, C), the logits after each layer, in the order of `config.labels`.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = BertWithExits(BertConfig(13, 8, 3, 2, 16, labels=("no", "yes")))
        >>> inputs = {"input_ids": tf.constant([[2, 7, 3]])}
        >>> model(inputs).shape.as_list()
        [1, 3, 2]
        >>> model.exit_early(inputs, entropy=1.0)["layers"].numpy()  # any answer is sure enough
        array([1], dtype=int32)
    """

    published_as = "BertForSequenceClassificationWithPabee"
    head_scope = "classifiers/"
    pooler_use = "needed"
    has_labels = True

    def __init__(self, config, *, pooling="cls", **kwargs):
        check(pooling in ("cls", "mean"), "pooling", '"cls" or "mean"', f"{pooling!r}")
        super().__init__(config, **kwargs)
        layers, answers = self.config.num_hidden_layers, self.config.answers
        check(layers >= 2, "num_hidden_layers", "at least 2, to leave after one", layers)
        expected = "single_label_classification, or None, with two labels or more, since exits "
        expected += "compare classes, one of which is right"
        got = f"{self.config.problem_type!r} and {len(self.config.labels)}"
        check(answers == "softmax", "problem_type", expected, got)
        self.pooling = pooling
        self.dropout = classifier_dropout(self.config, self.dtype_policy)
        units = len(self.config.labels)
        self.classifiers = [classifier(units, f"layer_{n}", self.config) for n in range(layers)]

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("classifiers"):
            for one in self.classifiers:
                one.build((None, self.config.hidden_size))

    @classmethod
    def from_pretrained(cls, path, **changes):
        """See `Bert.from_pretrained`."""
        if "pooling" not in changes:
            try:
                found = read_pooling(path).get("pooling")
            except ValueError:  # a pooling that only sentence encoders need
                found = None
            changes["pooling"] = "mean" if found == "mean" else "cls"
        return super().from_pretrained(path, **changes)

    def exit_logits(self, n, states, mask=None, training=None):
        """Compute the logits (B, C) of layer n, from 0, from its output (B, T, D), mask (B, T)."""
        pooled = self.bert.pooler_dense(pool_tokens(states, mask, self.pooling))
        return self.classifiers[n](self.dropout(pooled, training=training))

    def call(self, inputs, training=None):
        inputs = dense_inputs(inputs)
        outputs = self.bert(inputs, training=training, return_hidden_states=True)
        states, mask = outputs["hidden_states"][1:], inputs.get("attention_mask")
        return tf.stack([self.exit_logits(n, x, mask, training) for n, x in enumerate(states)], 1)

    def exit_early(self, inputs, patience=None, entropy=0.0):
        """Classify texts with no more layers than each needs.

        A text leaves after the first layer that predicts the same class as the `patience` layers
        before (PABEE), or whose probabilities have less than `entropy` (Xin et al. 2020,
        "DeeBERT"). The layers above compute only the remaining texts; in an XLA program the whole
        batch, where a row without a token may get no answer: zeros, 0 layers.

        Args:
            inputs: see the call arguments; a mask must have rank 2.
            patience: int or scalar int32 tensor, at least 1; None turns the rule off.
            entropy: float or scalar float32 tensor, in nats, at least 0; 0 turns the rule off.

        Returns:
            dict: `logits` float32 (B, C), from the layer after which the text left; `layers` int32
            (B,), the number of layers it took.

        Raises:
            ValueError: If a threshold is out of range, or the mask has another rank.
        """
        last = self.config.num_hidden_layers - 1
        patience, entropy = check_thresholds(self, patience, entropy)
        if not self.built:
            self.build()
        bert = self.bert
        x, mask = bert.embed(inputs, False)
        x, rows = bert.encoder.widened(x), tf.shape(x)[0]
        mask = tf.ones(tf.shape(x)[:2], tf.bool) if mask is None else mask
        check(mask.shape.rank == 2, "attention_mask", "(batch, length)", f"shape {mask.shape}")
        # In an XLA program, shapes are fixed, and rows of padding fill a bucket.
        can_leave = not in_xla_program()
        waits = tf.ones_like(mask[:, 0]) if can_leave else tf.reduce_any(mask, 1)  # (B,)

        def layer(n, now):
            layout = bert.layout(now.x, now.mask)
            found, _ = bert.encoder.forward_layer(n, layout.to_rows(now.x), layout, now.mask)
            x = layout.to_batch(found)
            logits = self.exit_logits(n, x, now.mask)  # (A, C)
            guess = tf.argmax(logits, -1, tf.int32)
            streak = tf.where(guess == now.guess, now.streak + 1, 0)
            nats = tf.reduce_sum(-tf.nn.softmax(logits) * tf.nn.log_softmax(logits), -1)  # (A,)
            is_done = (streak >= patience) | (nats < entropy) | (n == last)
            is_new = is_done & (tf.gather(now.layers, now.places) == 0)
            layers = tf.where(is_new, n + 1, tf.gather(now.layers, now.places))
            answers = tf.where(tf.expand_dims(is_new, 1), logits, tf.gather(now.logits, now.places))
            places = tf.expand_dims(now.places, 1)
            logits = tf.tensor_scatter_nd_update(now.logits, places, answers)
            layers = tf.tensor_scatter_nd_update(now.layers, places, layers)
            texts = x, now.mask, now.places, guess, streak
            if can_leave:
                stay = tf.where(~is_done)[:, 0]
                texts = (tf.gather(part, stay) for part in texts)
            return _Progress(*texts, logits, layers)

        numbers, logits = tf.range(rows), tf.zeros((rows, len(self.config.labels)))
        zeros = tf.zeros_like(numbers)
        now = _Progress(x, mask, numbers, tf.fill([rows], -1), zeros, logits, zeros)
        for n in range(last + 1):
            is_needed = tf.reduce_any((now.layers == 0) & waits)
            now = tf.cond(is_needed, lambda n=n, now=now: layer(n, now), lambda now=now: now)
        return {"logits": now.logits, "layers": now.layers}

    def write_side_files(self, folder):
        """See `write_pooling`; the first token, BERT's, needs no file."""
        if self.pooling == "mean":
            write_pooling(folder, self.pooling, False, self.config.hidden_size)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Compute the mean loss of all exits, weighted by layer number."""
        one, total = super().compute_loss, 0.0
        *lower, last = tf.unstack(y_pred, axis=1)
        if training:
            labels = read_labels(y, last, ignore_class_of(self.loss), sample_weight)
        for n, logits in enumerate(lower, 1):
            loss = one(x, y, logits, sample_weight, training)
            if training:
                taught = softened_divergence(logits, tf.stop_gradient(last), TEMPERATURE)
                taught = tf.math.multiply_no_nan(taught, labels.weights)
                loss = (loss + global_mean(taught, labels.real)) / 2
            total += n * loss
        layers = len(lower) + 1
        total += layers * one(x, y, last, sample_weight, training)
        return total / sum(range(layers + 1))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Compute the metrics of the last exit."""
        return super().compute_metrics(x, y, y_pred[:, -1], sample_weight)

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling}


def check_thresholds(model, patience, entropy):
    """Check the thresholds that are numbers, not tensors."""
    patience = model.config.num_hidden_layers if patience is None else patience
    if not tf.is_tensor(patience) and not (isinstance(patience, Integral) and patience >= 1):
        raise ArgumentError("patience", "a whole number of at least 1", patience)
    if not tf.is_tensor(entropy) and not (isinstance(entropy, Real) and entropy >= 0):
        raise ArgumentError("entropy", "a number of at least 0", entropy)
    return patience, entropy
