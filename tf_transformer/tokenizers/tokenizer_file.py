"""Files of tokenizers: `tokenizer.json`, BERT's `vocab.txt` and the models of SentencePiece."""

import base64
import itertools
import json
import operator
import re
from collections import Counter, namedtuple
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tf_transformer.errors import ArgumentError, MissingFileError, check
from tf_transformer.json_text import parse_json
from tf_transformer.tokenizers.pipeline import (
    BERT_SPECIAL_TOKENS,
    special_entries,
    tokenizer_json,
    wordpiece_model,
)

READABLE = "a tokenizer.json that can be read"
MODELS = ("BPE", "WordPiece", "Unigram")
# What `read_sentencepiece` makes; only a graph can run them.
_SENTENCEPIECE_MODELS = ("SentencePieceBPE", "SentencePieceUnigram")

# Unigram's penalty for an unknown character, relative to the least likely token (as SentencePiece).
UNKNOWN_PENALTY = 10.0


class UnsupportedPart(ArgumentError):
    """A part of a `tokenizer.json` is invalid or not supported by this package."""

    @classmethod
    def of(cls, part, expected, got):
        """Create the error for a part, given its name in the file."""
        place = f"The part {part!r} is not supported"
        return cls("path", f"{expected!r}", f"{got!r}", place=place)


def _rust_float(text):
    """Parse a number as serde_json does, which may miss the nearest float64 by one."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    exponent = int(exponent or 0)
    significand = 0
    for place, digit in enumerate(whole + fraction):
        if significand * 10 + int(digit) >= 2**64:  # all remaining digits are dropped
            exponent += max(len(whole) - place, 0)
            break
        significand = significand * 10 + int(digit)
        exponent -= place >= len(whole)
    value = float(significand)
    while exponent < -308 and value:
        value, exponent = value / 1e308, exponent + 308
    value = value / float(f"1e{-exponent}") if exponent < 0 else value * float(f"1e{exponent}")
    return -value if text.startswith("-") else value


# An entry of "added_tokens": a token that is matched in a text before the model splits the rest.
AddedToken = namedtuple(
    "AddedToken", "content id special single_word lstrip rstrip normalized", defaults=(False,) * 4
)


@dataclass(frozen=True)
class TokenizerFile:
    """A `tokenizer.json` with a validated vocabulary.

    Args:
        text: string, the whole file.

    Raises:
        ValueError: If the text is not JSON, repeats a key or lacks a part (the message names it),
            if two tokens share an id or an id is missing, or if the model is not one of `MODELS`.

    Example:
        >>> TokenizerFile.read("no-such-file.json")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: path: expected a tokenizer.json, got no file
        no-such-file.json.
    """

    text: str

    def __reduce__(self):
        return type(self), (self.text,)  # without the parsed content

    def __post_init__(self):
        if not isinstance(self.content, dict) or not isinstance(self.content.get("model"), dict):
            raise UnsupportedPart.of("model", "a dict, as in a tokenizer.json", "none")
        if self.model.get("type") not in (*MODELS, *_SENTENCEPIECE_MODELS):
            raise UnsupportedPart.of("model.type", MODELS, self.model.get("type"))
        self.vocabulary  # noqa: B018  raises if it is invalid

    @classmethod
    def read(cls, path):
        """Read a `tokenizer.json`; raises a FileNotFoundError, or the errors of the class."""
        path = existing(path, "a tokenizer.json")
        try:
            return cls(path.read_text(encoding="utf-8"))
        except ValueError as error:  # UnicodeDecodeError is one
            raise UnsupportedPart("path", READABLE, path, f"{error}") from error

    @classmethod
    def of(cls, content):
        """Create a file from its content, a dict that JSON can represent."""
        return cls(json.dumps(content, indent=2, ensure_ascii=False))

    @classmethod
    def read_vocabulary(cls, path, pipeline):
        """Read BERT's `vocab.txt`: one token per line, with the line number, from 0, as its id.

        As in Hugging Face's `BertTokenizer`, the last of several lines with one token counts. The
        others keep their ids under names such as "[line 7]", which is never a word of a text.

        Args:
            path: string or path of the text file.
            pipeline: `bert_pipeline(...)` for a cased or "uncased" model: the file does not
                specify which.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file is not UTF-8, begins with a byte order mark, has white space
                after a token or lacks one of BERT's special tokens.
        """
        path = existing(path, "a vocab.txt")
        try:
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ArgumentError("path", "UTF-8", f"{error} in {path}") from error
        if lines[0].startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
            got = f"one in {path}, which would be part of the first token"
            remedy = "Remove the mark and keep every line."
            raise ArgumentError("path", "UTF-8 without a byte order mark", got, remedy)
        for number, token in enumerate(lines):
            if token.strip() and token != token.rstrip():
                expected = "tokens without white space after them, which only some programs drop"
                got = f"{token!r} on line {number + 1} of {path}"
                remedy = "Remove the white space and keep the line."
                raise ArgumentError("path", expected, got, remedy)
        vocabulary = {token: number for number, token in enumerate(lines)}
        for number, token in enumerate(lines):
            if vocabulary[token] != number:
                name = f"[line {number + 1}]"
                while name in vocabulary:
                    name = f"[{name}]"
                vocabulary[name] = number
        missing = [token for token in BERT_SPECIAL_TOKENS if token not in vocabulary]
        got = f"none of {missing} in {path}"
        remedy = "Use the file that the model was trained with; do not insert or remove lines, "
        remedy += "since the line of a token is its id."
        check(not missing, "path", "BERT's special tokens", got, remedy)
        special = {token: vocabulary[token] for token in BERT_SPECIAL_TOKENS}
        model = wordpiece_model("[UNK]", "##", vocabulary)
        return cls.of(tokenizer_json(model, pipeline, special))

    @cached_property
    def content(self):
        """Dict, the parsed text, with numbers exactly as the Rust package parses them."""
        try:
            return parse_json(self.text, _rust_float)
        except json.JSONDecodeError as error:
            remedy = "Write one with `Tokenizer.save`."
            raise UnsupportedPart("path", "JSON", error, remedy) from error

    @property
    def model(self):
        """Dict, the part "model"."""
        return self.content["model"]

    @cached_property
    def vocabulary(self):
        """Tuple of V strings, the tokens in order of their ids, including added ones."""
        ids = _ids_of_model(self.model)
        for token in self.added_tokens:
            # The Rust package numbers tokens that the model lacks in the order of the file.
            expected = ids.setdefault(token.content, len(ids))
            if token.id != expected:
                expected = f"the id {expected} for {token.content!r}"
                raise UnsupportedPart.of("added_tokens", expected, token.id)
        tokens = {}
        for token, number in ids.items():
            if tokens.setdefault(number, token) != token:
                got = f"the id {number} for both {tokens[number]!r} and {token!r}"
                raise UnsupportedPart.of("model.vocab", "an id for each token", got)
        missing = [number for number in range(len(tokens)) if number not in tokens]
        if missing:
            expected = f"the ids 0 to {len(tokens) - 1}"
            raise UnsupportedPart.of("model.vocab", expected, f"none of {missing[:5]}")
        return tuple(tokens[number] for number in range(len(tokens)))

    @cached_property
    def special_tokens(self):
        """Dict of string -> id, the added tokens that are special."""
        return {token.content: token.id for token in self.added_tokens if token.special}

    @cached_property
    def added_tokens(self):
        """Tuple of `AddedToken`s."""
        added = self.content.get("added_tokens") or []
        try:
            fields = operator.itemgetter(*AddedToken._fields)
            found = tuple(AddedToken(*fields(token)) for token in added)
        except (KeyError, TypeError) as error:
            expected = f"{', '.join(AddedToken._fields)} of each"
            raise UnsupportedPart.of("added_tokens", expected, f"none for {error}") from error
        contents = set()
        for token in found:
            if tuple(map(type, token)) != (str, int, *[bool] * 5):
                raise UnsupportedPart.of("added_tokens", "a string, an id and flags", token)
            if not token.content or token.content in contents:
                raise UnsupportedPart.of("added_tokens", "each token once, none empty", token)
            if token.lstrip and token.content.isspace():
                # The Rust package panics if it follows a token with `rstrip`.
                raise UnsupportedPart.of("added_tokens", "no lstrip of white space", token)
            contents.add(token.content)
        return found

    def with_added_tokens(self, tokens):
        """The file with more `AddedToken`s, without their ids; numbers keep their spelling."""
        mark = "\ud800"  # never in a valid text
        content = json.loads(self.text, parse_float=mark.__add__)
        ids = {token: number for number, token in enumerate(self.vocabulary)}
        tokens = [token._replace(id=ids.setdefault(token.content, len(ids))) for token in tokens]
        added = content.get("added_tokens") or []
        content["added_tokens"] = [*added, *(token._asdict() for token in tokens)]
        text = json.dumps(content, indent=2, ensure_ascii=False)
        return type(self)(re.sub(f'"{mark}([^"]*)"', r"\1", text))

    @cached_property
    def merge_pairs(self):
        """Tuple of pairs of tokens, the merges of a BPE model, best rank first."""
        # Versions of the format before 2024 write a merge as one string with a space.
        merges = self.model.get("merges") or []
        return tuple(tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in merges)

    @cached_property
    def merges(self):
        """int64 `[M, 3]`, the left, right and merged ids of each pair in `merge_pairs`."""
        vocab = self.model["vocab"]
        cut = len(self.model.get("continuing_subword_prefix") or "")
        rows, seen = [], set()
        for rank, pair in enumerate(self.merge_pairs):
            tokens = (*pair, pair[0] + pair[1][cut:]) if len(pair) == 2 else (None,)
            ids = [vocab.get(token) for token in tokens]
            if None in ids or pair in seen:
                expected = "pairs of tokens, each pair once, whose union is in the vocabulary"
                raise UnsupportedPart.of("model.merges", expected, f"{pair!r} at rank {rank}")
            seen.add(pair)
            rows.append(ids)
        return np.array(rows, np.int64).reshape(-1, 3)


def existing(path, expected):
    """The path of a file; a FileNotFoundError if there is none."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError("path", expected, f"no file {path}")
    return path


def _ids_of_model(model):
    vocab = model.get("vocab")
    if model["type"] == "Unigram":
        if not isinstance(vocab, list) or not all(_is_entry(entry) for entry in vocab):
            expected, got = "a list of [token, score]", type(vocab).__name__
            raise UnsupportedPart.of("model.vocab", expected, f"{got} of something else")
        ids = {token: number for number, (token, _) in enumerate(vocab)}
        if len(ids) < len(vocab):
            [(twice, _)] = Counter(token for token, _ in vocab).most_common(1)
            raise UnsupportedPart.of("model.vocab", "each token once", f"{twice!r} twice")
        return ids
    if not isinstance(vocab, dict) or not all(type(i) is int for i in vocab.values()):
        raise UnsupportedPart.of("model.vocab", "a dict of token -> id", type(vocab).__name__)
    return dict(vocab)


def _is_entry(entry):
    is_pair = isinstance(entry, list) and len(entry) == 2
    return is_pair and isinstance(entry[0], str) and isinstance(entry[1], int | float)


def check_spellings(tokens, spellings, parses_special=True):
    """Refuse added tokens that are equal after normalization: the package matches any of them."""
    seen = {}
    for token, spelling in zip(tokens, spellings, strict=True):
        other = seen.setdefault(spelling, token)
        is_matched = parses_special or not (other.special and token.special)
        if other is not token and is_matched:
            expected = "tokens that differ after normalization"
            raise UnsupportedPart.of("added_tokens", expected, [other.content, token.content])


_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_ALGORITHMS = {1: "Unigram", 2: "BPE"}


def read_sentencepiece(path, ids=None, special=()):
    """Read a model of SentencePiece, without its package, for the tokenizers in a graph.

    Kudo and Richardson 2018. The ids are the same.

    Args:
        path: str or Path, a file such as `spiece.model` or `source.spm`, of the type "unigram" or
            "bpe".
        ids: dict of piece -> id, the vocabulary of a file such as Marian's `vocab.json`, which
            replaces the numbers of the model; pieces without an id are unknown. Or a function that
            makes it from the list of all pieces.
        special: collection of str, further special tokens among the ids, such as "<pad>".

    Returns:
        A `TokenizerFile` for `GraphSentencePieceUnigram` or `GraphSentencePieceBPE`. The control
        symbols are its special tokens; inside a text they are plain text.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is no model of SentencePiece, or has a part that is not supported.

    Example:
        >>> from tf_transformer import read_sentencepiece
        >>> read_sentencepiece("spiece.model")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: path: expected a model of SentencePiece, got no file
        spiece.model.
    """
    path = existing(path, "a model of SentencePiece")
    try:
        model = _Message(path.read_bytes())
        pieces = [_piece(message) for message in model.all(1)]
        parts = _Message(model.last(2, b"")), _Message(model.last(3, b""))
        return TokenizerFile.of(_content(pieces, *parts, ids, special))
    except ArgumentError:
        raise
    except (IndexError, TypeError, ValueError) as error:
        expected = "a model of SentencePiece"
        raise UnsupportedPart("path", expected, f"{path}: {error}") from error


def fairseq_ids(pieces, added=()):
    """Ids of models from fairseq, such as XLM-RoBERTa: special tokens, pieces, `added` tokens."""
    if pieces[:3] != ["<unk>", "<s>", "</s>"]:
        raise UnsupportedPart.of("pieces", "first <unk>, <s> and </s>", pieces[:3])
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:], *added]
    return {name: number for number, name in enumerate(names)}


def _content(pieces, trainer, normalizer, ids, special):
    algorithm = _ALGORITHMS.get(trainer.last(3, 1))
    if algorithm is None:
        expected = f"1 or 2, {' or '.join(_ALGORITHMS.values())}"
        raise UnsupportedPart.of("trainer_spec.model_type", expected, trainer.last(3, 1))
    texts = [text for text, _, _ in pieces]
    scores = {text: float(score) for text, score, _ in pieces}
    kinds = {kind: [text for text, _, its in pieces if its == kind] for kind in range(1, 7)}
    if len(scores) < len(texts) or "" in scores or sum(map(len, kinds.values())) < len(texts):
        raise UnsupportedPart.of("pieces", "each piece once, none empty, of a known type", "others")
    if not np.isfinite([*scores.values()]).all():
        raise UnsupportedPart.of("pieces", "finite scores", "others")
    if len(kinds[_UNKNOWN]) != 1 or not kinds[_NORMAL]:
        raise UnsupportedPart.of("pieces", "normal pieces and one that is unknown", "others")
    byte_fallback = bool(trainer.last(35, 0))
    if byte_fallback != (len(kinds[_BYTE]) == 256):
        got = f"{len(kinds[_BYTE])} bytes"
        raise UnsupportedPart.of("pieces", "256 bytes for byte_fallback, else none", got)
    [unknown] = kinds[_UNKNOWN]
    ids = ids(texts) if callable(ids) else ids
    numbers = {text: number for number, text in enumerate(texts)} if ids is None else ids
    if unknown not in numbers:
        raise UnsupportedPart.of("vocabulary", f"an id for {unknown!r}", "none")
    settings = {
        "type": "SentencePiece",
        "add_dummy_prefix": bool(normalizer.last(3, 1)),
        "remove_extra_whitespaces": bool(normalizer.last(4, 1)),
    }
    if algorithm == "BPE":
        found = _merges(kinds, scores)
    else:
        found = {"pieces": [[text, scores[text]] for text in kinds[_NORMAL]]}
        found["user_defined"] = kinds[_USER_DEFINED]
    special = {*special, unknown, *kinds[_CONTROL]}
    return {
        "version": "1.0",
        "added_tokens": special_entries({text: numbers[text] for text in special & numbers.keys()}),
        "normalizer": {
            **settings,
            "precompiled_charsmap": base64.b64encode(normalizer.last(2, b"")).decode(),
            "escape_whitespaces": bool(normalizer.last(5, 1)),
            "treat_whitespace_as_suffix": bool(trainer.last(24, 0)),
            "user_defined_symbols": kinds[_USER_DEFINED],
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [settings, *[{"type": "ByteFallback"}] * byte_fallback],
        },
        "model": {
            "type": f"SentencePiece{algorithm}",
            "vocab": numbers,
            "unk_token": unknown,
            "byte_fallback": byte_fallback,
            **found,
        },
    }


def _merges(kinds, scores):
    """The pieces, and all merges that make one, in the order of the scores of the results."""
    others = kinds[_USER_DEFINED] + kinds[_UNUSED]
    if others:
        raise UnsupportedPart.of("pieces", "no user-defined or unused ones in BPE", others[:5])
    if any(len(text) == 1 for text in kinds[_CONTROL]):
        # There a character that is no piece becomes the control symbol of that name.
        raise UnsupportedPart.of("pieces", "no control symbol of one character in BPE", "one")
    texts = {*kinds[_NORMAL]}
    missing = {*itertools.chain(*texts)} - texts
    if missing:
        got = f"no {sorted(missing)[:5]}"
        raise UnsupportedPart.of("pieces", "a piece for each character of the others", got)
    merged = sorted((text for text in kinds[_NORMAL] if len(text) > 1), key=lambda t: -scores[t])
    if len({scores[text] for text in merged}) < len(merged):
        raise UnsupportedPart.of("pieces", "another score for each merge of BPE", "equal ones")
    merges = [
        [text[:cut], text[cut:], rank]
        for rank, text in enumerate(merged)
        for cut in range(1, len(text))
        if text[:cut] in texts and text[cut:] in texts
    ]
    return {"pieces": kinds[_NORMAL], "merges": merges}


def _piece(message):
    message = _Message(message)
    score = np.frombuffer(message.last(2, bytes(4)), "<f4")[0]
    return message.last(1, b"").decode(), score, message.last(3, _NORMAL)


class _Message:
    """The fields of a message in the wire format of protocol buffers."""

    def __init__(self, data):
        self._fields, place = {}, 0
        while place < len(data):
            key, place = _varint(data, place)
            number, kind = key >> 3, key & 7
            if kind == 0:
                value, place = _varint(data, place)
            elif kind in (1, 2, 5):
                size, place = _varint(data, place) if kind == 2 else (8 if kind == 1 else 4, place)
                value = data[place : place + size]
                place += size
                if place > len(data):
                    raise IndexError("it ends within a field")
            else:
                raise IndexError(f"a field of the kind {kind}")
            self._fields.setdefault(number, []).append(value)

    def all(self, number):
        """The values of a repeated field: bytes, or integers."""
        return self._fields.get(number, [])

    def last(self, number, default):
        """The value of a field that occurs once."""
        value = [default, *self.all(number)][-1]
        if type(value) is not type(default):
            raise TypeError(f"the field {number} is of another type")
        return value


def _varint(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise IndexError("a number of more than 64 bits")
