"""Exported sentence encoders, and vectors of files of texts.

Axes: B batch, D width of a vector.
"""

import itertools
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.text_model import TEXTS, TextModel
from tf_transformer.models.bert import SentenceEncoder
from tf_transformer.models.bert.checkpoints.config_files import (
    SENTENCE_BERT,
    check_fields,
    read_json,
)
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


def embed_lines(encode, lines, batch_size=64, lines_at_once=4096):
    """Encode lines in order, one part at a time.

    A part is sorted by length before it is divided into batches, which keeps padding small.

    Args:
        encode: function of a list of B str or bytes to floats (B, D): `TextEncoder.encode`, also
            of a SavedModel.
        lines: iterable of str or bytes (UTF-8), read as needed.
        batch_size: int, maximum number of lines encoded together.
        lines_at_once: int, maximum number of lines held in memory.

    Yields:
        float32 arrays (lines of the part, D).

    Raises:
        ValueError: If `batch_size` or `lines_at_once` is below 1.

    Example:
        >>> encode = lambda texts: tf.cast(tf.strings.length(texts), tf.float32)[:, None]
        >>> [part.ravel().tolist() for part in embed_lines(encode, ["abc", "d", "ef"], 2, 2)]
        [[3.0, 1.0], [2.0]]
    """
    for name, value in (("batch_size", batch_size), ("lines_at_once", lines_at_once)):
        if value < 1:
            raise ArgumentError(name, "at least 1", value)
    lines = iter(lines)
    while part := list(itertools.islice(lines, lines_at_once)):
        order = np.argsort([len(line) for line in part], kind="stable")
        vectors = None
        for start in range(0, len(part), batch_size):
            rows = order[start : start + batch_size]
            batch = np.asarray(encode([part[row] for row in rows]))
            if vectors is None:
                vectors = np.empty((len(part), batch.shape[1]), np.float32)
            vectors[rows] = batch
        yield vectors


def write_vectors(stream, parts, width, dtype="<f4"):
    """Write one `.npy` file from parts whose total number of rows is not known in advance.

    The data are collected in a temporary file, since the file header holds the number of rows.

    Args:
        stream: binary file, possibly a pipe.
        parts: iterable of arrays (rows, D).
        width: int, D.
        dtype: of the file.

    Returns:
        int, the number of rows.

    Example:
        >>> import io
        >>> stream = io.BytesIO()
        >>> write_vectors(stream, [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)], 3)
        3
        >>> np.load(io.BytesIO(stream.getvalue())).sum()
        np.float32(6.0)
    """
    rows = 0
    with tempfile.TemporaryFile() as body:
        for part in parts:
            body.write(np.ascontiguousarray(part, dtype).tobytes())
            rows += len(part)
        descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
        header = {"descr": descr, "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(stream, header)
        body.seek(0)
        shutil.copyfileobj(body, stream)
    return rows


def nearest(index, vectors, top, rows_at_once=65536, scales=None):
    """Find the rows of an index with the largest dot product with each vector.

    For vectors of length 1 the dot product is the cosine similarity.

    Args:
        index: array (rows, D), may be memory-mapped; it is read in parts.
        vectors: float array (B, D).
        top: int, number of results, at most the rows of the index.
        rows_at_once: int, rows of the index compared at once.
        scales: None, or float array (rows,), what each row is multiplied by.

    Returns:
        `(scores, rows)`: float32 and int64 arrays (B, top), best first, ties in order of
        rows.

    Raises:
        ValueError: If index and vectors differ in width, or `top` is below 1.

    Example:
        >>> index = np.eye(3, dtype=np.float32)
        >>> nearest(index, index[1:2] * 0.5, top=2)[1].tolist()
        [[1, 0]]
    """
    check_search(vectors, index.shape[1] if index.ndim == 2 else index.shape, top)
    scores = np.empty((len(vectors), 0), np.float32)
    rows = np.empty((len(vectors), 0), np.int64)
    for start in range(0, len(index), rows_at_once):
        part = vectors @ np.asarray(index[start : start + rows_at_once], np.float32).T
        if scales is not None:
            part *= scales[start : start + rows_at_once]
        scores = np.concatenate([scores, part], 1)
        numbers = np.arange(start, start + part.shape[1])
        rows = np.concatenate([rows, np.broadcast_to(numbers, part.shape)], 1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        scores, rows = (np.take_along_axis(x, best, 1) for x in (scores, rows))
    return scores, rows


def check_search(vectors, width, top):
    """Check the arguments of a search."""
    if vectors.shape[1] != width:
        raise ArgumentError(
            "index",
            f"vectors of width {vectors.shape[1]}, as the model produces",
            width,
            "Build the index with the same model.",
        )
    if top < 1:
        raise ArgumentError("top", "at least 1", top)
