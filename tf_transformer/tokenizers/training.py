"""What training has in common for all models: texts in, the content of a file out."""

import itertools
import json
import sys
from collections import Counter
from importlib import import_module
from numbers import Integral
from pathlib import Path

from tf_transformer.tokenizers.pipeline import tokenizer_json

_ALPHABET = "the special tokens and every character of the texts"


def train_content(texts, vocab_size, pipeline, model, trainer):
    """Trains with the Rust package.

    Args:
        texts: iterable of strings, or of `pathlib.Path`s of text files, a text a line.
        vocab_size: integer, the largest number of ids.
        pipeline: `Pipeline`.
        model: dict, the part "model" with nothing learned yet.
        trainer: a trainer of the Rust package.

    Returns:
        dict, the content of a `tokenizer.json`.

    Raises:
        TypeError: `texts` is one string, or holds something else.
        ValueError: `texts` has no text, or `vocab_size` is smaller than the alphabet.

    Example:
        >>> from tokenizers.trainers import BpeTrainer
        >>> from tf_transformer.tokenizers import metaspace_pipeline
        >>> model = {"type": "BPE", "unk_token": "<unk>", "vocab": {}, "merges": []}
        >>> trainer = BpeTrainer(vocab_size=9, special_tokens=["<pad>", "<s>", "</s>", "<unk>"])
        >>> content = train_content(["ab ab"], 9, metaspace_pipeline(), model, trainer)
        >>> list(content["model"]["vocab"])[4:]
        ['a', 'b', '▁', 'ab', '▁ab']
    """
    backend = import_tokenizers().Tokenizer.from_str(
        json.dumps(tokenizer_json(model, pipeline, special_ids={}))
    )
    characters = set()
    try:
        backend.train_from_iterator(_noting(characters, checked_texts(texts)), trainer)
        size = backend.get_vocab_size()
    except Exception as error:  # the package raises nothing narrower
        if "not large enough" not in str(error):
            raise
        size = vocab_size + 1
    if size > vocab_size and model["type"] == "Unigram":
        # That trainer stops before it has counted, or leaves nothing out once it is past its size.
        size = max(vocab_size + 1, len(characters) + len(pipeline.special_tokens))
    check_vocab_size(vocab_size, size, _ALPHABET)
    check_learned(size, pipeline)
    special_ids = {token: backend.token_to_id(token) for token in pipeline.special_tokens}
    return tokenizer_json(json.loads(backend.to_str())["model"], pipeline, special_ids)


def check_vocab_size(vocab_size, smallest, reason):
    """Refuses a size that cannot be, before any work.

    Args:
        vocab_size: integer.
        smallest: integer, the least that can be.
        reason: string, what needs so many.

    Raises:
        ValueError: it is no integer, or too small.

    Example:
        >>> check_vocab_size(100, 259, "256 bytes and 3 special tokens")
        Traceback (most recent call last):
        ValueError: vocab_size: expected an integer of at least 259 (256 bytes and 3 special ...
    """
    if not isinstance(vocab_size, Integral) or vocab_size < smallest:
        raise ValueError(
            f"vocab_size: expected an integer of at least {smallest} ({reason}), received "
            f"{vocab_size!r}; ask for more, 8000 is common"
        )


def check_learned(size, pipeline):
    """Refuses a vocabulary that holds special tokens only.

    Args:
        size: integer, the number of tokens.
        pipeline: `Pipeline`.

    Raises:
        ValueError: there is no other token.

    Example:
        >>> from tf_transformer.tokenizers import bert_pipeline
        >>> check_learned(5, bert_pipeline())
        Traceback (most recent call last):
        ValueError: texts: expected some text after normalisation, received none; check that ...
    """
    if size <= len(pipeline.special_tokens):
        raise ValueError(
            "texts: expected some text after normalisation, received none; check that the corpus "
            "was read as what it is"
        )


def checked_texts(texts):
    """Reads texts one by one, from files where a path is named; refuses what has none.

    Args:
        texts: iterable of strings and of `pathlib.Path`s.

    Returns:
        Iterator of strings.

    Raises:
        TypeError: `texts` is one string; while reading: an item is neither string nor path.
        ValueError: no text holds anything but blanks.
        FileNotFoundError: while reading: there is no such file.

    Example:
        >>> list(checked_texts(["", "low", "new"]))
        ['low', 'new']
    """
    if isinstance(texts, str | Path):
        raise TypeError(
            f"texts: expected an iterable of strings or paths, received one "
            f"{type(texts).__name__}; use [it]"
        )
    texts = _lines(texts)
    for text in texts:
        if text.strip():
            return itertools.chain([text], texts)
    raise ValueError(
        "texts: expected at least one text that is not blank, received none; check that the "
        "corpus was read"
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
            raise ValueError(f"texts: expected UTF-8, but {path} is not ({error})") from error


def count_words(texts, pipeline):
    """Counts the words that a pipeline cuts texts into.

    Args:
        texts, pipeline: as in `train_content`.

    Returns:
        `Counter` of strings.

    Raises:
        TypeError, ValueError: as `train_content` says of `texts`.

    Example:
        >>> from tf_transformer.tokenizers import bert_pipeline
        >>> count_words(["Low, lower, low"], bert_pipeline())
        Counter({'low': 2, ',': 2, 'lower': 1})
    """
    model = {"type": "WordPiece", "unk_token": "", "vocab": {}}
    model |= {"continuing_subword_prefix": "", "max_input_chars_per_word": 100}
    backend = import_tokenizers().Tokenizer.from_str(
        json.dumps(tokenizer_json(model, pipeline, special_ids={}))
    )
    counts = Counter()
    for text in checked_texts(texts):
        text = backend.normalizer.normalize_str(text)
        counts.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
    return counts


def import_tokenizers():
    """Returns the module `tokenizers`; raises ImportError with what to do about it.

    Example:
        >>> import_tokenizers().__name__
        'tokenizers'
    """
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise ImportError(
            "Tokenizers in Python need the package 'tokenizers', which is not installed; run "
            'pip install -e ".[train]" (graph tokenizers read a saved file without it)'
        ) from error


def is_watched():
    """Whether somebody sees a progress bar: in a log its lines, of both streams, would be noise.

    Example:
        >>> is_watched() in (True, False)
        True
    """
    return sys.stdout.isatty() and sys.stderr.isatty()


def check_string(text):
    """Returns a text; raises TypeError if it is none, ValueError if UTF-8 cannot write it.

    Example:
        >>> check_string(5)
        Traceback (most recent call last):
        TypeError: texts: expected strings, received int; decode bytes first
    """
    if not isinstance(text, str):
        raise TypeError(
            f"texts: expected strings, received {type(text).__name__}; decode bytes first"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"texts: expected text without lone surrogates, received U+{ord(text[error.start]):X} "
            f'at character {error.start}; decode the bytes with errors="replace"'
        ) from error
    return text
