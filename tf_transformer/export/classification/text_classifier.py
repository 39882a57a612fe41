"""Strings in, classes out.

Axes: B batch, C classes.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.text_model import TEXTS, TextModel


class TextClassifier(TextModel):
    """A `BertForSequenceClassification` with its tokenizer, as a SavedModel: texts to classes.

    Args:
        model: `BertForSequenceClassification`, or `StoredWeights` of one; `unpad=True` makes it
            faster.
        tokenizer, max_length, jit_compile, options: see `TextModel`.

    Raises:
        ValueError: If there are fewer than two classes; see also `TextModel`.

    Example:
        >>> import tempfile, pathlib
        >>> from tf_transformer.models.bert import BertConfig, BertForSequenceClassification
        >>> from tf_transformer.models.bert.text_inputs import read_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> config = BertConfig(7, 8, 1, 2, 9, labels=("no", "yes"))
        >>> model = BertForSequenceClassification(config)
        >>> model.build()
        >>> classifier = TextClassifier(model, read_tokenizer(folder))
        >>> answer = classifier.classify(["a b"])
        >>> answer["probabilities"].shape.as_list(), answer["label"].shape.as_list()
        ([1, 2], [1])
    """

    def __init__(self, model, tokenizer, max_length=None, jit_compile=False, **options):
        super().__init__(model, tokenizer, max_length, jit_compile, **options)
        self._labels = classes_of(model)
        # Not a decorator, which would keep only a weak reference: `TextClassifier(...).classify()`.
        self.classify = tf.function(self.classify, input_signature=[TEXTS], autograph=False)

    def classify(self, text):
        """string (B,) -> `label` string (B,), `probabilities` float32 (B, C)."""
        return self.answer(self.compute(text))

    def answer(self, logits):
        """Name the classes: float (B, C) -> `label` string (B,), `probabilities` float32 (B, C)."""
        probabilities = tf.nn.softmax(logits)
        label = tf.gather(tf.constant(self._labels), tf.argmax(probabilities, axis=-1))
        return {"label": label, "probabilities": probabilities}

    @tf.function(input_signature=[], autograph=False)
    def labels(self):
        """The names of the classes, in the order of `probabilities`: string (C,)."""
        return {"labels": tf.constant(self._labels)}

    def signatures(self):
        """`serving_default`: `text` -> `label` and `probabilities`; `labels`."""
        return {"serving_default": self.classify, "labels": self.labels}


def classes_of(model):
    """The classes of a classifier.

    Args:
        model: a BERT model with labels.

    Returns:
        tuple of strings.

    Raises:
        ValueError: If there are fewer than two: a softmax over one class is always 1.

    Example:
        >>> from tf_transformer.models.bert import BertConfig, BertForSequenceClassification
        >>> classes_of(BertForSequenceClassification(BertConfig(7, 8, 1, 2, 9, labels=("a", "b"))))
        ('a', 'b')
    """
    labels = model.config.labels
    if len(labels) < 2:
        raise ArgumentError(
            "model",
            "at least two classes",
            labels,
            "For a score call the model itself on `text_inputs`.",
        )
    return labels
