"""Exported classifiers: texts to classes.

Axes: B batch, C classes.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.text_model import TEXTS, TextModel
from tf_transformer.models.bert.exits import check_thresholds
from tf_transformer.models.bert.heads import answers_of

__all__ = [
    "EarlyExitClassifier",
    "TextClassifier",
]


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


_THRESHOLDS = (
    tf.TensorSpec((), tf.int32, name="patience"),
    tf.TensorSpec((), tf.float32, name="entropy"),
)


class EarlyExitClassifier(TextClassifier):
    """A `BertWithExits` with its tokenizer, as a SavedModel whose thresholds are inputs.

    `classify` has the thresholds given here; `classify_early` takes them with the texts, so that a
    server can trade accuracy for time under load. See `BertWithExits.exit_early` for the rules and
    `compression.choose_exit` for good thresholds.

    Args:
        model: `BertWithExits`, or `StoredWeights` of one; `unpad=True` makes it faster.
        tokenizer: its `GraphTokenizer`.
        max_length, jit_compile: see `TextModel`.
        patience, entropy: see `BertWithExits.exit_early`.

    Raises:
        ValueError: If the model has no exits, or a threshold is out of range; see also
            `TextClassifier`.

    Example:
        >>> import tempfile, pathlib
        >>> from tf_transformer.models.bert import BertConfig, BertWithExits
        >>> from tf_transformer.models.bert.text_inputs import read_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = BertWithExits(BertConfig(7, 8, 3, 2, 9, labels=("no", "yes")))
        >>> model.build()
        >>> classifier = EarlyExitClassifier(model, read_tokenizer(folder), entropy=1.0)
        >>> classifier.classify(["a b"])["layers"].numpy()
        array([1], dtype=int32)
        >>> classifier.classify_early(["a b"], 3, 0.0)["layers"].numpy()
        array([3], dtype=int32)
    """

    def __init__(
        self, model, tokenizer, max_length=None, jit_compile=False, *, patience=None, entropy=0.0
    ):
        if not hasattr(model, "exit_early"):
            raise ArgumentError("model", "a BertWithExits", type(model).__name__)
        self._thresholds = check_thresholds(model, patience, entropy)
        super().__init__(
            model,
            tokenizer,
            max_length,
            jit_compile,
            function=model.exit_early,
            settings=_THRESHOLDS,
        )
        signature = [TEXTS, *_THRESHOLDS]
        self.classify_early = tf.function(
            self.classify_early, input_signature=signature, autograph=False
        )

    def classify(self, text):
        """string (B,) -> `label` string (B,), `probabilities` (B, C), `layers` int32 (B,)."""
        return self.classify_early(text, *self._thresholds)

    def classify_early(self, text, patience, entropy):
        """Classify with thresholds that are scalar tensors, patience int32, entropy float32."""
        tf.debugging.Assert(
            (patience >= 1) & (entropy >= 0),
            ["patience, entropy: expected at least 1 and 0, got", patience, entropy],
        )
        outputs = self.compute(text, patience, entropy)
        return {**self.answer(outputs["logits"]), "layers": outputs["layers"]}

    def signatures(self):
        """Those of `TextClassifier`, and `early`: `text`, `patience`, `entropy` -> the same."""
        return {**super().signatures(), "early": self.classify_early}
