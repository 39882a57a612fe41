"""Strings in, classes out.

Axes: B batch, C classes.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.text_model import TEXTS, TextModel
from tf_transformer.models.bert.classifier import answers_of


class TextClassifier(TextModel):
    """A `BertForSequenceClassification` with its tokenizer, as a SavedModel: texts to classes.

    The `problem_type` of the config says what the answers are, as in the pipeline of transformers:
    probabilities of one right class, by a softmax (its default for several labels); a probability
    for each label by itself, by a sigmoid ("multi_label_classification", and the default for one
    label); or the numbers of a "regression". `label` is that with the largest.

    Args:
        model: `BertForSequenceClassification`, or `StoredWeights` of one; `unpad=True` makes it
            faster.
        tokenizer, max_length, jit_compile, options: see `TextModel`.

    Raises:
        ValueError: If the model has no labels; see also `TextModel`.

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
        self._config = model.config
        if not model.config.labels:
            raise ArgumentError("model", "a text classifier, with labels", type(model).__name__)
        # Not a decorator, which would keep only a weak reference: `TextClassifier(...).classify()`.
        self.classify = tf.function(self.classify, input_signature=[TEXTS], autograph=False)

    def classify(self, text):
        """string (B,) -> `label` string (B,), `probabilities` or `values` float32 (B, C)."""
        return self.answer(self.compute(text))

    def answer(self, logits):
        """Float (B, C) -> `label` string (B,), `probabilities` or `values` float32 (B, C)."""
        label = tf.gather(tf.constant(self._config.labels), tf.argmax(logits, axis=-1))
        return {"label": label, **answers_of(logits, self._config)}

    @tf.function(input_signature=[], autograph=False)
    def labels(self):
        """The names of the classes, in the order of the answers: string (C,)."""
        return {"labels": tf.constant(self._config.labels)}

    def signatures(self):
        """`serving_default`: `text` -> `label`, and `probabilities` or `values`; `labels`."""
        return {"serving_default": self.classify, "labels": self.labels}
