"""Strings in, vectors out.

Axes: B batch, D width of a vector.
"""

import warnings
from pathlib import Path

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.text_model import TEXTS, TextModel
from tf_transformer.models.bert import SentenceEncoder
from tf_transformer.models.bert.checkpoints.fields import SENTENCE_BERT, check_fields
from tf_transformer.models.bert.checkpoints.json_file import read_json
from tf_transformer.models.bert.text_inputs import read_tokenizer


class TextEncoder(TextModel):
    """A `SentenceEncoder` with its tokenizer, as a SavedModel: texts to vectors.

    Args:
        model: `SentenceEncoder`, or `StoredWeights` of one; `unpad=True` makes it faster.
        tokenizer, max_length, jit_compile: see `TextModel`.
        lowercase: bool, whether to lowercase texts before tokenization.

    Example:
        >>> import tempfile, pathlib
        >>> from tf_transformer.models.bert import BertConfig, SentenceEncoder
        >>> from tf_transformer.models.bert.text_inputs import read_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = SentenceEncoder(BertConfig(7, 8, 1, 2, 9))
        >>> model.build()
        >>> encoder = TextEncoder(model, read_tokenizer(folder))
        >>> encoder.encode(["a b", ""]).shape.as_list()
        [2, 8]
    """

    def __init__(self, model, tokenizer, max_length=None, lowercase=False, jit_compile=False):
        super().__init__(model, tokenizer, max_length, jit_compile)
        self._lowercase = lowercase
        # Not a decorator, which would keep only a weak reference: `TextEncoder(...).encode(texts)`.
        self.encode = tf.function(self.encode, input_signature=[TEXTS], autograph=False)

    @classmethod
    def from_pretrained(cls, path, *, jit_compile=False, **changes):
        """Load the encoder from the folder of a checkpoint.

        Args:
            path: str or Path: a folder with a vocabulary, see `SentenceEncoder.from_pretrained`.
                The maximum length and lowercasing come from `sentence_bert_config.json`, if there
                is one.
            jit_compile: see `TextModel`.
            changes: see `SentenceEncoder.from_pretrained`; `unpad` is True by default.

        Returns:
            `TextEncoder`.

        Raises:
            FileNotFoundError, ImportError, ValueError: See `SentenceEncoder` and `read_tokenizer`.

        Warns:
            UserWarning: If the model expects a prompt before each text, which is not added.
        """
        model = SentenceEncoder.from_pretrained(path, **{"unpad": True, **changes})
        longest, lowercase = read_text_settings(path)
        return cls(model, read_tokenizer(path), longest, lowercase, jit_compile)

    def encode(self, text):
        """string (B,) -> float32 (B, D)."""
        return self.compute(tf.strings.lower(text, "utf-8") if self._lowercase else text)

    def signatures(self):
        """`serving_default`: `text` -> `vector`."""
        return {
            "serving_default": tf.function(
                lambda text: {"vector": self.encode(text)}, input_signature=[TEXTS]
            )
        }


def read_text_settings(folder):
    """Read what a sentence-transformers model does with texts before its tokenizer."""
    folder = Path(folder)
    settings = folder / "sentence_bert_config.json"
    content = read_json(settings) if settings.is_file() else {}
    check_fields(content, SENTENCE_BERT, settings)
    longest, lowercase = content.get("max_seq_length"), content.get("do_lower_case") or False
    if longest is not None and (type(longest) is not int or longest < 3):
        raise ArgumentError(
            "max_seq_length", f"an integer of at least 3 in {settings}", f"{longest!r}"
        )
    if not isinstance(lowercase, bool):
        raise ArgumentError("do_lower_case", f"true or false in {settings}", f"{lowercase!r}")
    if longest is None and settings.is_file():
        longest = _model_max_length(folder)
    _warn_of_prompt(folder / "config_sentence_transformers.json")
    return longest, lowercase


def _model_max_length(folder):
    """The tokenizer's maximum, with which sentence-transformers fills in a missing one."""
    if not (folder / "tokenizer_config.json").is_file():
        return None
    longest = read_json(folder / "tokenizer_config.json").get("model_max_length")
    most = read_json(folder / "config.json").get("max_position_embeddings")
    is_smaller = type(longest) is int and type(most) is int and 3 <= longest < most
    return longest if is_smaller else None  # 10^30 stands for none


def _warn_of_prompt(path):
    settings = read_json(path) if path.is_file() else {}
    name = settings.get("default_prompt_name")
    if name is not None:
        prompts = settings.get("prompts")
        named = isinstance(prompts, dict) and isinstance(name, str)
        prompt = prompts.get(name) if named else None
        warnings.warn(
            f"{path}: this model expects the prompt {prompt!r} before each text, which is "
            f"not added automatically. Put it before your texts.",
            stacklevel=4,
        )
