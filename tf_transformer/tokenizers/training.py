"""Training steps that all models share, from texts to the content of a `tokenizer.json`."""

import itertools
import json
import sys
from collections import Counter
from importlib import import_module
from numbers import Integral
from pathlib import Path

from tf_transformer.errors import ArgumentError, MissingPackage
from tf_transformer.tokenizers.pipeline import tokenizer_json

_ALPHABET = "the special tokens and every character of the texts"


def train_content(texts, vocab_size, pipeline, model, trainer):
    """Train a model with the Rust package."""
    backend = _untrained(model, pipeline)
    characters = set()
    try:
        backend.train_from_iterator(_noting(characters, checked_texts(texts)), trainer)
        size = backend.get_vocab_size()
    except Exception as error:  # the package raises nothing narrower
        if "not large enough" not in str(error):
            raise
        size = vocab_size + 1
    if size > vocab_size and model["type"] == "Unigram":
        # This trainer stops before counting, or no longer drops tokens beyond its size.
        size = max(vocab_size + 1, len(characters) + len(pipeline.special_tokens))
    check_vocab_size(vocab_size, size, _ALPHABET)
    check_learned(size, pipeline)
    special_ids = {token: backend.token_to_id(token) for token in pipeline.special_tokens}
    return tokenizer_json(json.loads(backend.to_str())["model"], pipeline, special_ids)


def check_vocab_size(vocab_size, smallest, reason):
    """Reject an impossible vocabulary size before training starts."""
    if not isinstance(vocab_size, Integral) or vocab_size < smallest:
        raise ArgumentError(
            "vocab_size",
            f"an integer of at least {smallest} ({reason})",
            f"{vocab_size!r}",
            "Use a larger size, such as 8000.",
        )


def check_unknown(pipeline):
    """Reject a pipeline without an unknown token."""
    if pipeline.unknown is None:
        raise ArgumentError(
            "pipeline",
            "one with an unknown token",
            "one without",
            "Use bert_pipeline() or metaspace_pipeline().",
        )


def check_learned(size, pipeline):
    """Reject a vocabulary that contains only special tokens."""
    if size <= len(pipeline.special_tokens):
        raise ArgumentError(
            "texts",
            "some text after normalization",
            "none",
            "Check that the corpus was read correctly.",
        )


def checked_texts(texts):
    """Yield texts one by one, reading files from paths; reject input without text."""
    if isinstance(texts, str | Path):
        raise TypeError(
            f"texts: expected an iterable of strings or paths, got one "
            f"{type(texts).__name__}; wrap it in a list"
        )
    texts = _lines(texts)
    for text in texts:
        if text.strip():
            return itertools.chain([text], texts)
    raise ArgumentError(
        "texts", "at least one text that is not blank", "none", "Check that the corpus was read."
    )


def _noting(characters, texts):
    for text in texts:
        characters.update(text)
        yield text


def _lines(texts):
    for item in texts:
        if isinstance(item, Path):
            yield from _lines_of_file(item)
        else:
            yield check_string(item)


def _lines_of_file(path):
    with open(path, encoding="utf-8") as lines:
        try:
            for line in lines:
                yield line.removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ArgumentError("texts", f"UTF-8 in {path}", error) from error


def count_words(texts, pipeline):
    """Count the words that a pipeline splits texts into."""
    backend = _untrained({"type": "BPE", "vocab": {}, "merges": []}, pipeline)  # any model will do
    counts = Counter()
    for text in checked_texts(texts):
        text = backend.normalizer.normalize_str(text)
        counts.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
    return counts


def _untrained(model, pipeline):
    """Return the Rust package's tokenizer for a model without a vocabulary."""
    content = tokenizer_json(model, pipeline, special_ids={})
    return import_tokenizers().Tokenizer.from_str(json.dumps(content))


def import_tokenizers():
    """Return the module `tokenizers`; raise an ImportError with a hint if it is not installed."""
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise MissingPackage(
            "Tokenizers in Python need the package 'tokenizers', which is not installed; run "
            'pip install -e ".[train]" (graph tokenizers can read a saved file without it)'
        ) from error


def is_watched():
    """Return whether to show a progress bar: only on a terminal, since it clutters a log."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def check_string(text):
    """Return a text; TypeError if it is not a string, ValueError if UTF-8 cannot encode it."""
    if not isinstance(text, str):
        raise TypeError(f"texts: expected strings, got {type(text).__name__}; decode bytes first")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArgumentError(
            "texts",
            "text without lone surrogates",
            f"U+{ord(text[error.start]):X} at character {error.start}",
            'Decode the bytes with errors="replace".',
        ) from error
    return text
