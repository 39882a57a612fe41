"""BERT for text classification with a classifier after every layer.

Axes: B batch, T length, D hidden size, L layers, C classes.
"""

import keras
import tensorflow as tf

from tf_transformer.distribution.global_mean import global_mean
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.cross_entropy import softened_divergence
from tf_transformer.functional.labels import ignore_class_of, read_labels
from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.classifier import classifier, classifier_dropout
from tf_transformer.models.bert.early_exit import early_exit
from tf_transformer.models.bert.pooling import pool_tokens, read_pooling, write_pooling
from tf_transformer.models.bert.pretrained_bert import dense_inputs

TEMPERATURE = 2.0  # of the last exit's predictions, which teach the others


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertWithExits(BertWithHead):
    """Predict the class of a text after every layer, so that easy texts can leave early.

    Zhou et al. 2020, "BERT Loses Patience" (PABEE): the pooler is shared, each layer has its own
    classifier. The loss is sum_n n L_n / sum_n n over the exits n = 1..L, as theirs; metrics look
    at the last exit.

    Differs from the paper in two ways (benchmarks/compression/NOTES.md). In training, L_n of a
    lower exit is half the loss on the labels and half the divergence from the last exit, softened
    with temperature 2 (Phuong and Lampert 2019, "Distillation-Based Training for Multi-Exit
    Architectures"): texts leave earlier with the same answer. And `pooling="mean"`: reading the
    first token, the three lower exits of a fine-tuned MiniLM gave all texts the same class.

    Args:
        config, unpad, jit, architecture: see `Bert`; the config must have a pooler and `labels`.
        pooling: what the pooler reads: "cls", the first token, as BERT; or "mean", that of all
            tokens except padding. `from_pretrained` takes it from the folder of a
            sentence-transformers model.

    Call arguments:
        inputs, training: see `Bert`.

    Returns:
        float32 tensor (B, L, C), the logits after each layer, in the order of `config.labels`.

    Raises:
        ValueError: If the config has fewer than two labels, another `problem_type` than classes of
            which one is right, no pooler or one layer, or the pooling is unknown; see also `Bert`.

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
        if pooling not in ("cls", "mean"):
            raise ArgumentError("pooling", '"cls" or "mean"', f"{pooling!r}")
        super().__init__(config, **kwargs)
        if self.config.num_hidden_layers < 2:
            raise ArgumentError("num_hidden_layers", "at least 2, to leave after one", "1")
        if self.config.answers != "softmax":
            raise ArgumentError(
                "problem_type",
                (
                    "single_label_classification, or None, with two labels or more, since "
                    "exits compare classes of which one is right"
                ),
                f"{self.config.problem_type!r} and {len(self.config.labels)}",
            )
        self.pooling = pooling
        self.dropout = classifier_dropout(self.config, self.dtype_policy)
        self.classifiers = [
            classifier(len(self.config.labels), f"layer_{n}", self.config)
            for n in range(self.config.num_hidden_layers)
        ]

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("classifiers"):
            for one in self.classifiers:
                one.build((None, self.config.hidden_size))

    @classmethod
    def from_pretrained(cls, path, **changes):
        """See `PretrainedBert.from_pretrained`."""
        if "pooling" not in changes:
            try:
                found = read_pooling(path).get("pooling")
            except ValueError:  # a pooling that sentence encoders need, and exits do not
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

        A text leaves after the first layer whose class is that of the `patience` layers before
        (PABEE), or whose probabilities have less than `entropy` (Xin et al. 2020, "DeeBERT"). The
        layers above compute only the texts that are left, and are skipped when none is. In a
        program that XLA compiles, the batch goes on as a whole until all have an answer. The
        answers are the same, except for a row without a token, which may get none there: zeros, 0
        layers. Differs from PABEE's code, where a whole batch has to agree.

        Args:
            inputs: see the call arguments; a mask must have rank 2.
            patience: None for no such rule; or int or scalar int32 tensor, at least 1.
            entropy: float or scalar float32 tensor, in nats, at least 0; 0 for no such rule.

        Returns:
            dict: `logits` float32 (B, C), those of the layer where the text left; `layers` int32
            (B,), how many layers it took.

        Raises:
            ValueError: If a threshold is out of range, or the mask has another rank.
        """
        return early_exit(self, inputs, patience, entropy)

    def write_side_files(self, folder):
        """Write the pooling in the format of sentence-transformers, unless it is BERT's."""
        if self.pooling == "mean":
            write_pooling(folder, self.pooling, False, self.config.hidden_size)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Compute the mean of the losses of all exits, weighted by the number of their layer."""
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
