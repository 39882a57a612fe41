"""Sentence encoders and classifiers with their tokenizers, as SavedModels.

Axes: B batch, T length, C classes, D width of a vector.
"""

import functools
import warnings
from pathlib import Path

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.export.compile_for import (
    SIZES,
    SMALL_ROWS,
    BucketedFunction,
    bucket_lengths,
    signature,
    traced,
    warm_up_texts,
)
from tf_transformer.export.saving import TEXTS, save_module
from tf_transformer.functional.tensors import asserted, has_accelerator
from tf_transformer.models.base_model import check_vocabulary
from tf_transformer.models.bert import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertWithExits,
    SentenceEncoder,
)
from tf_transformer.models.bert.bert import INPUTS
from tf_transformer.models.bert.checkpoints.config_files import (
    SENTENCE_BERT,
    check_fields,
    read_json,
)
from tf_transformer.models.bert.exits import check_thresholds
from tf_transformer.models.bert.heads import answers_of
from tf_transformer.models.bert.text_inputs import framed_inputs, read_tokenizer, text_inputs
from tf_transformer.models.hugging_face.folders import (
    FAMILIES,
    load,
    load_sentence_encoder,
    published_type,
)
from tf_transformer.models.hugging_face.translation_tokenizers import decoder_tokenizer

INPUT_SPECS = {name: tf.TensorSpec((None, None), tf.int32, name=name) for name in INPUTS}


class TextModel(tf.Module):
    """Base class of SavedModels for texts; subclasses add functions and their `signatures`."""

    head = None  # the class of the model
    takes_any_text = True  # whether `serving_default` takes texts alone, and all of them

    # `function` replaces the model's call; it takes `settings` as further arguments.
    def __init__(
        self, model, tokenizer, max_length=None, jit_compile=None, *, function=None, settings=()
    ):
        super().__init__(name=type(self).__name__.lower())
        config = getattr(model, "config", None)
        expected = "a model of tf_transformer.bert, or a PooledModel"
        check(config is not None, "model", expected, type(model).__name__)
        check_vocabulary(model, tokenizer)
        self._max_length = config.max_length if max_length is None else max_length
        expected = f"at most {config.max_length} (max_position_embeddings), from 1"
        in_range = self._max_length in range(1, config.max_length + 1)
        check(in_range, "max_length", expected, max_length)
        self.tokenizer = tokenizer
        # Not the model: the weights of a Keras model tracked here would be saved twice.
        self.weights = [weight.value for weight in model.weights]
        read = text_inputs if hasattr(model, "published_as") else framed_inputs  # of BERT or not
        self._read = functools.partial(read, tokenizer, max_length=self._max_length)
        self._resources = getattr(model, "resources", [])  # of `StoredWeights`
        jit_compile = has_accelerator() if jit_compile is None else jit_compile
        call = function or functools.partial(model.__call__, training=False)
        by_xla = tf.function(call, jit_compile=True, autograph=False)
        plain = by_xla if jit_compile else call
        buckets = SMALL_ROWS, bucket_lengths(self._max_length)
        self._call = BucketedFunction(by_xla, plain, INPUT_SPECS, *buckets, jit_compile, settings)
        self.warm_up = self._call.warm_up

    @classmethod
    def from_pretrained(cls, path, *, ignored_fields=(), unpad=True, **settings):
        """Load the model from the folder of a checkpoint with a vocabulary.

        Args:
            path, ignored_fields, unpad: see the model's `from_pretrained`, also for the errors; of
                a decoder, `load`.
            settings: arguments of the class.
        """
        if published_type(path) in FAMILIES:
            model = load(path, ignored_fields=ignored_fields)
            return cls(model, decoder_tokenizer(path), **settings)
        model = cls.head.from_pretrained(path, ignored_fields=ignored_fields, unpad=unpad)
        return cls(model, read_tokenizer(path), **settings)

    def compute(self, text, *settings):
        """Run the model on texts: string (B,) -> outputs (B, ...); T may be a bucket length."""
        return self._call(self._read(text), *settings)

    def save(self, path):
        """Write a SavedModel with the signatures, `warm_up` and, if texts are all that it takes,
        data for TensorFlow Serving, in place of one; FileExistsError for other content.
        """
        signatures = {**self.signatures(), "warm_up": signature("programs", self.warm_up, *SIZES)}
        texts = warm_up_texts(self._max_length) if self.takes_any_text else ()
        save_module(self, path, signatures, texts)


class TextEncoder(TextModel):
    """A model of sentence vectors with its tokenizer, as a SavedModel: texts to vectors.

    After `save`, it loads in a process that has only TensorFlow. Longer texts are truncated.
    `warm_up(rows, length)` compiles it for small batches, see `BucketedFunction.warm_up`.

    Args:
        model: a built `SentenceEncoder`, for which `unpad=True` is faster, or `PooledModel`; or
            `StoredWeights` of one.
        tokenizer: its `GraphTokenizer`. The texts of a `PooledModel` get the special tokens that
            the file adds; a text without tokens raises tf.errors.InvalidArgumentError.
        max_length: int, maximum number of tokens; None for all positions of the model.
        lowercase: bool, whether to lowercase texts before tokenization.
        jit_compile: bool, or None for True where TensorFlow sees a GPU or TPU. False uses XLA only
            for small batches that `warm_up` compiled. True compiles the model for each bucket at
            its first batch, for seconds: B is padded to a power of two, T to 8, 16, 32 and so on.
            What it gains is in benchmarks/bert/NOTES.md.

    Raises:
        ValueError: If the tokenizer has more tokens than the model, or `max_length` exceeds the
            position table.

    Example:
        >>> from tf_transformer.models.bert import BertConfig
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = SentenceEncoder(BertConfig(7, 8, 1, 2, 9))
        >>> model.build()
        >>> TextEncoder(model, read_tokenizer(".")).encode(["a b", ""]).shape.as_list()
        [2, 8]
    """

    def __init__(self, model, tokenizer, max_length=None, lowercase=False, jit_compile=None):
        super().__init__(model, tokenizer, max_length, jit_compile)
        self._lowercase = lowercase
        self.encode = traced(self.encode, TEXTS)

    @classmethod
    def from_pretrained(cls, path, *, jit_compile=None, **changes):
        """Load the encoder from the folder of a checkpoint: BERT's, a decoder's or T5's.

        Args:
            path, changes: see `SentenceEncoder.from_pretrained`; `unpad` is True by default, and
                `sentence_bert_config.json`, if present, sets the maximum length and lowercasing.
                For a decoder and T5, whose decoder is not used: `pooling` ("lasttoken", "mean" or
                "cls"), `normalize` (True) and `ignored_fields`; `modules.json`, if present, says
                the first two, and may have a dense layer.
            jit_compile: see `TextEncoder`.

        Raises:
            ValueError: If the pooling of a decoder or T5 is neither in the folder nor given; see
                also `load`.

        Warns:
            UserWarning: If the model expects a prompt before each text, which is not added.
        """
        if published_type(path) in FAMILIES:
            if others := sorted(changes.keys() - {"pooling", "normalize", "ignored_fields"}):
                given = {name: changes[name] for name in others}
                raise ArgumentError(", ".join(others), "none for a decoder or T5", given)
            model = load_sentence_encoder(path, **changes)
            tokenizer = decoder_tokenizer(path)
        else:
            model = SentenceEncoder.from_pretrained(path, **{"unpad": True, **changes})
            tokenizer = read_tokenizer(path)
        longest, lowercase = read_text_settings(path, model.config.max_length)
        return cls(model, tokenizer, longest, lowercase, jit_compile)

    def encode(self, text):
        """string (B,) -> float32 (B, D)."""
        return self.compute(tf.strings.lower(text, "utf-8") if self._lowercase else text)

    def signatures(self):
        """`serving_default`: `text` -> `vector`."""
        return {"serving_default": signature("vector", self.encode, TEXTS)}


def read_text_settings(folder, most):
    """The maximum length of sentence-transformers, None for `most`, and whether it lowercases."""
    folder = Path(folder)
    settings = folder / "sentence_bert_config.json"
    content = read_json(settings) if settings.is_file() else {}
    check_fields(content, SENTENCE_BERT, settings)
    longest, lowercase = content.get("max_seq_length"), content.get("do_lower_case") or False
    is_length = longest is None or (type(longest) is int and longest >= 3)
    check(is_length, "max_seq_length", f"an integer of at least 3 in {settings}", f"{longest!r}")
    expected = f"true or false in {settings}"
    check(isinstance(lowercase, bool), "do_lower_case", expected, f"{lowercase!r}")
    file = folder / "tokenizer_config.json"
    if longest is None and settings.is_file() and file.is_file():  # the tokenizer's by default
        longest = read_json(file).get("model_max_length")
        if not (type(longest) is int and 3 <= longest < most):
            longest = None  # 10^30 stands for none
    _warn_of_prompt(folder / "config_sentence_transformers.json")
    return longest, lowercase


def _warn_of_prompt(path):
    settings = read_json(path) if path.is_file() else {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    if name is not None:
        named = isinstance(prompts, dict) and isinstance(name, str)
        message = f"{path}: this model expects the prompt {prompts.get(name) if named else None!r}"
        message += " before each text, which is not added automatically. Put it before your texts."
        warnings.warn(message, stacklevel=4)


class TextClassifier(TextModel):
    """A text classifier with its tokenizer, as a SavedModel: texts to classes.

    The `problem_type` of the config determines the answers, as in the pipeline of transformers:
    probabilities of the classes by a softmax (the default for several labels), an independent
    probability for each label by a sigmoid ("multi_label_classification", and the default for one
    label), or the numbers of a "regression". `label` is the label with the largest.

    Args:
        model: a built `BertForSequenceClassification`, or `PooledModel` with labels, as `load`
            makes of a decoder with a head for classes; or `StoredWeights` of one.
        tokenizer, max_length, jit_compile: see `TextEncoder`.

    Raises:
        ValueError: If the model has no labels; see also `TextEncoder`.

    Example:
        >>> from tf_transformer.models.bert import BertConfig, BertForSequenceClassification
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> config = BertConfig(7, 8, 1, 2, 9, labels=("no", "yes"))
        >>> model = BertForSequenceClassification(config)
        >>> model.build()
        >>> answer = TextClassifier(model, read_tokenizer(".")).classify(["a b"])
        >>> answer["probabilities"].shape.as_list(), answer["label"].shape.as_list()
        ([1, 2], [1])
    """

    head = BertForSequenceClassification

    def __init__(self, model, tokenizer, max_length=None, jit_compile=None, **options):
        super().__init__(model, tokenizer, max_length, jit_compile, **options)
        self._config = model.config
        check(model.config.labels, "model", "a text classifier, with labels", type(model).__name__)
        self.classify = traced(self.classify, TEXTS)

    def classify(self, text):
        """string (B,) -> `label` string (B,), `probabilities` or `values` float32 (B, C)."""
        return self.answer(self.compute(text))

    def answer(self, logits):
        """Float (B, C) -> `label` string (B,), `probabilities` or `values` float32 (B, C)."""
        label = tf.gather(tf.constant(self._config.labels), tf.argmax(logits, axis=-1))
        return {"label": label, **answers_of(logits, self._config)}

    @tf.function(input_signature=[], autograph=False)
    def labels(self):
        """Return the names of the classes, in the order of the answers: string (C,)."""
        return {"labels": tf.constant(self._config.labels)}

    def signatures(self):
        """`serving_default`: `text` -> `label`, and `probabilities` or `values`; `labels`."""
        return {"serving_default": self.classify, "labels": self.labels}


_THRESHOLDS = tf.TensorSpec((), tf.int32, name="patience"), tf.TensorSpec((), name="entropy")


class EarlyExitClassifier(TextClassifier):
    """A `BertWithExits` with its tokenizer, as a SavedModel whose thresholds are inputs.

    `classify` uses the thresholds given here; `classify_early` takes them as arguments, so that a
    server can trade accuracy for latency under load. See `BertWithExits.exit_early` for the rules
    and `compression.choose_exit` for good thresholds.

    Args:
        model: a built `BertWithExits`, or `StoredWeights` of one.
        tokenizer, max_length, jit_compile: see `TextEncoder`.
        patience, entropy: see `BertWithExits.exit_early`.

    Raises:
        ValueError: If the model has no exits or a threshold is out of range; see `TextClassifier`.

    Example:
        >>> from tf_transformer.models.bert import BertConfig, BertWithExits
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = BertWithExits(BertConfig(7, 8, 3, 2, 9, labels=("no", "yes")))
        >>> model.build()
        >>> classifier = EarlyExitClassifier(model, read_tokenizer("."), entropy=1.0)
        >>> classifier.classify_early(["a b"], 3, 0.0)["layers"].numpy().tolist()
        [3]
    """

    head = BertWithExits

    def __init__(
        self, model, tokenizer, max_length=None, jit_compile=None, *, patience=None, entropy=0.0
    ):
        check(hasattr(model, "exit_early"), "model", "a BertWithExits", type(model).__name__)
        self._thresholds = check_thresholds(model, patience, entropy)
        options = {"function": model.exit_early, "settings": _THRESHOLDS}
        super().__init__(model, tokenizer, max_length, jit_compile, **options)
        self.classify_early = traced(self.classify_early, TEXTS, *_THRESHOLDS)

    def classify(self, text):
        """string (B,) -> `label` string (B,), `probabilities` (B, C), `layers` int32 (B,)."""
        return self.classify_early(text, *self._thresholds)

    def classify_early(self, text, patience, entropy):
        """Classify with thresholds given as scalar tensors: patience int32, entropy float32."""
        message = ["patience, entropy: expected at least 1 and 0, got", patience, entropy]
        tf.debugging.Assert((patience >= 1) & (entropy >= 0), message)
        outputs = self.compute(text, patience, entropy)
        return {**self.answer(outputs["logits"]), "layers": outputs["layers"]}

    def signatures(self):
        """As in `TextClassifier`, and `early`: `text`, `patience`, `entropy` -> the same."""
        return {**super().signatures(), "early": self.classify_early}


class MaskFiller(TextModel):
    """A `BertForMaskedLM` with its tokenizer, as a SavedModel: the likeliest tokens for a mask.

    Each text has one mask, written as in the vocabulary: "[MASK]" for BERT, "<mask>" for RoBERTa.
    The scores are those of the pipeline "fill-mask" of transformers: a softmax over all tokens.

    Args:
        model: a built `BertForMaskedLM`, or `StoredWeights` of one.
        tokenizer, max_length, jit_compile: see `TextEncoder`.

    Raises:
        ValueError: If the model is of another class; see also `TextEncoder`.

    Example:
        >>> from tf_transformer.models.bert import BertConfig, BertForMaskedLM
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = BertForMaskedLM(BertConfig(7, 8, 1, 2, 9))
        >>> model.build()
        >>> found = MaskFiller(model, read_tokenizer(".")).fill(["a [MASK] b"], top_k=2)
        >>> found["tokens"].shape.as_list(), found["scores"].shape.as_list()
        ([1, 2], [1, 2])
    """

    head = BertForMaskedLM
    takes_any_text = False

    def __init__(self, model, tokenizer, max_length=None, jit_compile=None):
        if getattr(model, "published_as", None) != BertForMaskedLM.published_as:
            raise ArgumentError("model", "a BertForMaskedLM", type(model).__name__)
        mask_id, call = tokenizer.mask_id, model.__call__

        def probabilities(inputs):
            is_mask = tf.equal(inputs["input_ids"], mask_id)
            positions = tf.argmax(is_mask, axis=1, output_type=tf.int32)[:, tf.newaxis]
            logits = call({**inputs, "masked_lm_positions": positions}, training=False)
            return tf.nn.softmax(tf.cast(tf.squeeze(logits, 1), tf.float32))  # (B, V)

        super().__init__(model, tokenizer, max_length, jit_compile, function=probabilities)
        [self._mask] = (token.content for token in tokenizer.added_tokens if token.id == mask_id)
        self.fill = traced(self.fill, TEXTS, tf.TensorSpec((), tf.int32, name="top_k"))

    def fill(self, text, top_k=5):
        """string (B,) -> `tokens` string (B, top_k), the likeliest first, `scores` float32.

        tf.errors.InvalidArgumentError if a text has no mask, or several, among the tokens that the
        model reads, or if `top_k` is not in [1, V].
        """
        inputs = text_inputs(self.tokenizer, text, None, self._max_length, self._mask)
        counts = tf.math.count_nonzero(inputs["input_ids"] == self.tokenizer.mask_id, axis=1)
        expected = f"one {self._mask} in the first {self._max_length} tokens of each"
        size = self.tokenizer.vocab_size
        holds = tf.reduce_all(tf.equal(counts, 1)), (top_k >= 1) & (top_k <= size)
        error = ("text", expected, "none or several")
        inputs["input_ids"] = asserted(inputs["input_ids"], holds[0], *error)
        error = ("top_k", f"a number in [1, {size}]", "another")
        scores = asserted(self._call(inputs), holds[1], *error)
        scores, ids = tf.math.top_k(scores[:, :size], top_k)
        tokens = self.tokenizer.decode_ids(tf.reshape(ids, (-1, 1)))
        spelled = tf.gather(tf.constant(self.tokenizer.vocabulary), ids)  # of special tokens
        tokens = tf.reshape(tokens, tf.shape(ids))
        return {"tokens": tf.where(tokens == "", spelled, tokens), "scores": scores}

    def signatures(self):
        """`serving_default`: `text`, `top_k` -> `tokens`, `scores`."""
        return {"serving_default": self.fill}
