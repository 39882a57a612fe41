"""Training steps that all models share, and WordPiece's criterion: the information of pairs."""

import itertools
import json
import sys
from collections import Counter, defaultdict
from importlib import import_module
from numbers import Integral
from pathlib import Path

import numpy as np

from tf_transformer.errors import ArgumentError, MissingPackage, check
from tf_transformer.tokenizers.pipeline import tokenizer_json


def train_content(texts, vocab_size, pipeline, model, trainer, **settings):
    """Train a model with a trainer of the Rust package; return the content of a file."""
    backend = _untrained(model, pipeline)
    shared = {
        "vocab_size": vocab_size,
        "special_tokens": list(pipeline.special_tokens),
        # A progress bar only on a terminal: it clutters a log.
        "show_progress": sys.stdout.isatty() and sys.stderr.isatty(),
    }
    trainer = getattr(import_tokenizers().trainers, trainer)(**shared | settings)
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
    check_learned(vocab_size, size, pipeline)
    special_ids = {token: backend.token_to_id(token) for token in pipeline.special_tokens}
    return tokenizer_json(json.loads(backend.to_str())["model"], pipeline, special_ids)


def check_vocab_size(vocab_size, pipeline, alphabet=()):
    """Reject a pipeline or a vocabulary size that cannot work, before training starts."""
    remedy = "Use bert_pipeline() or metaspace_pipeline()."
    can_write_all = pipeline.unknown is not None or alphabet
    check(can_write_all, "pipeline", "one with an unknown token", "one without", remedy)
    num_special = len(pipeline.special_tokens)
    known = f"{len(alphabet)} bytes" if alphabet else "an alphabet"
    reason = f"{num_special} special tokens and {known}"
    _check_size(vocab_size, num_special + max(len(alphabet), 1), reason)


def _check_size(vocab_size, smallest, reason):
    if not isinstance(vocab_size, Integral) or vocab_size < smallest:
        expected = f"an integer of at least {smallest} ({reason})"
        remedy = "Use a larger size, such as 8000."
        raise ArgumentError("vocab_size", expected, f"{vocab_size!r}", remedy)


def check_learned(vocab_size, size, pipeline):
    """Reject a vocabulary that is too large, or contains only special tokens."""
    _check_size(vocab_size, size, "the special tokens and every character of the texts")
    if size <= len(pipeline.special_tokens):
        remedy = "Check that the corpus was read correctly."
        raise ArgumentError("texts", "some text after normalization", "none", remedy)


def checked_texts(texts):
    """Yield texts one by one, reading files from paths; reject input without text."""
    if isinstance(texts, str | Path):
        got = f"got one {type(texts).__name__}; wrap it in a list"
        raise TypeError(f"texts: expected an iterable of strings or paths, {got}")
    texts = _lines(texts)
    for text in texts:
        if text.strip():
            return itertools.chain([text], texts)
    expected = "at least one text that is not blank"
    raise ArgumentError("texts", expected, "none", "Check that the corpus was read.")


def _noting(characters, texts):
    for text in texts:
        characters.update(text)
        yield text


def _lines(texts):
    for item in texts:
        if not isinstance(item, Path):
            yield check_string(item)
            continue
        with open(item, encoding="utf-8") as lines:
            try:
                yield from (line.removesuffix("\n") for line in lines)
            except UnicodeDecodeError as error:
                raise ArgumentError("texts", f"UTF-8 in {item}", error) from error


def check_string(text):
    """Return a text; TypeError if it is not a string, ValueError if UTF-8 cannot encode it."""
    if not isinstance(text, str):
        raise TypeError(f"texts: expected strings, got {type(text).__name__}; decode bytes first")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        got = f"U+{ord(text[error.start]):X} at character {error.start}"
        remedy = 'Decode the bytes with errors="replace".'
        raise ArgumentError("texts", "text without lone surrogates", got, remedy) from error
    return text


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
        message = "Tokenizers in Python need the package 'tokenizers', which is not installed; run "
        message += 'pip install -e ".[train]" (graph tokenizers can read a saved file without it)'
        raise MissingPackage(message) from error


def learn_wordpieces(word_counts, num_tokens, prefix="##", min_frequency=2):
    """Repeatedly merge the best pair; see `WordPieceTokenizer.train_by_information`."""
    corpus = _Corpus(word_counts, prefix)
    while len(corpus.tokens) < num_tokens:
        pair = corpus.best_pair(min_frequency)
        if pair is None:
            break
        corpus.merge(*pair)
    return corpus.tokens


class _Corpus:
    """Words as lists of token numbers, with up-to-date counts of tokens and pairs."""

    def __init__(self, word_counts, prefix):
        self._prefix = prefix
        self.tokens = []
        self._number = {}
        words = {w: [w[0], *(prefix + c for c in w[1:])] for w in word_counts if w}
        for token in sorted({token for word in words.values() for token in word}):
            self._add(token)
        self._words = [[self._number[token] for token in word] for word in words.values()]
        self._word_counts = [word_counts[word] for word in words]
        self._token_counts = Counter()
        self._slot = {}  # of each pair in the arrays below
        self._pairs, self._pair_counts = np.zeros((1024, 2), np.int64), np.zeros(1024)
        self._words_of = defaultdict(set)
        for index in range(len(self._words)):
            self._count(index, 1)

    def best_pair(self, min_frequency):
        """Return the two tokens to merge, or None."""
        size = len(self._slot)
        left, right = self._pairs[:size].T
        together = self._pair_counts[:size]
        counts = np.zeros(len(self.tokens))
        counts[list(self._token_counts)] = list(self._token_counts.values())
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = together * np.log(together * counts.sum() / (counts[left] * counts[right]))
        gain[together < min_frequency] = -np.inf
        if not size or np.isneginf(gain).all():
            return None
        equal = np.flatnonzero(gain == gain.max())
        equal = equal[together[equal] == together[equal].max()]
        return min(self._pairs[equal].tolist(), key=lambda pair: [self.tokens[i] for i in pair])

    def merge(self, left, right):
        """Merge a pair into one token everywhere."""
        merged = self._add(self.tokens[left] + self.tokens[right].removeprefix(self._prefix))
        for index in sorted(self._words_of.pop((left, right))):
            self._count(index, -1)
            word, place = self._words[index], 0
            while place < len(word) - 1:
                if word[place] == left and word[place + 1] == right:
                    word[place : place + 2] = [merged]
                place += 1
            self._count(index, 1)

    def _add(self, token):
        if token not in self._number:
            self._number[token] = len(self.tokens)
            self.tokens.append(token)
        return self._number[token]

    def _count(self, index, sign):
        word, count = self._words[index], sign * self._word_counts[index]
        for token in word:
            self._token_counts[token] += count
        for pair in itertools.pairwise(word):
            slot = self._slot.setdefault(pair, len(self._slot))
            if slot == len(self._pairs):
                self._pairs = np.concatenate([self._pairs, np.zeros_like(self._pairs)])
                self._pair_counts = np.append(self._pair_counts, np.zeros(slot))
            self._pairs[slot] = pair
            self._pair_counts[slot] += count
            if sign > 0:
                self._words_of[pair].add(index)
