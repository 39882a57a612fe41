"""Reading the models of SentencePiece (Kudo and Richardson 2018), without its package."""

import base64
import itertools

import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile, UnsupportedPart, existing

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_ALGORITHMS = {1: "Unigram", 2: "BPE"}


def read_sentencepiece(path, ids=None, special=()):
    """Read a model of SentencePiece for the tokenizers in a graph, which give the same ids.

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
    kinds = {kind: [piece for piece in pieces if piece[2] == kind] for kind in range(1, 7)}
    texts = [text for text, _, _ in pieces]
    if len({*texts}) < len(texts) or "" in texts or sum(map(len, kinds.values())) < len(texts):
        raise UnsupportedPart.of("pieces", "each piece once, none empty, of a known type", "others")
    if not np.isfinite([score for _, score, _ in pieces]).all():
        raise UnsupportedPart.of("pieces", "finite scores", "others")
    if len(kinds[_UNKNOWN]) != 1 or not kinds[_NORMAL]:
        raise UnsupportedPart.of("pieces", "normal pieces and one that is unknown", "others")
    byte_fallback = bool(trainer.last(35, 0))
    if byte_fallback != (len(kinds[_BYTE]) == 256):
        got = f"{len(kinds[_BYTE])} bytes"
        raise UnsupportedPart.of("pieces", "256 bytes for byte_fallback, else none", got)
    [[unknown, _, _]] = kinds[_UNKNOWN]
    make = _unigram if algorithm == "Unigram" else _bpe
    ids = ids(texts) if callable(ids) else ids
    numbers = {text: number for number, text in enumerate(texts)} if ids is None else ids
    if unknown not in numbers:
        raise UnsupportedPart.of("vocabulary", f"an id for {unknown!r}", "none")
    settings = {
        "type": "SentencePiece",
        "add_dummy_prefix": bool(normalizer.last(3, 1)),
        "remove_extra_whitespaces": bool(normalizer.last(4, 1)),
    }
    special = {*special, *(text for text, _, kind in pieces if kind in (_UNKNOWN, _CONTROL))}
    special = sorted(special & numbers.keys(), key=numbers.get)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": numbers[text], "content": text, **flags, "special": True} for text in special
        ],
        "normalizer": {
            **settings,
            "precompiled_charsmap": base64.b64encode(normalizer.last(2, b"")).decode(),
            "escape_whitespaces": bool(normalizer.last(5, 1)),
            "treat_whitespace_as_suffix": bool(trainer.last(24, 0)),
            "user_defined_symbols": [text for text, _, _ in kinds[_USER_DEFINED]],
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
            **make(kinds),
        },
    }


def _unigram(kinds):
    """The pieces that are found in a text."""
    return {
        "pieces": [[text, float(score)] for text, score, _ in kinds[_NORMAL]],
        "user_defined": [text for text, _, _ in kinds[_USER_DEFINED]],
    }


def _bpe(kinds):
    """The pieces, and all merges that make one, in the order of the scores of the results."""
    if kinds[_USER_DEFINED] or kinds[_UNUSED]:
        got = [text for text, _, _ in [*kinds[_USER_DEFINED], *kinds[_UNUSED]]][:5]
        raise UnsupportedPart.of("pieces", "no user-defined or unused ones in BPE", got)
    if any(len(text) == 1 for text, _, _ in kinds[_CONTROL]):
        # There a character that is no piece becomes the control symbol of that name.
        raise UnsupportedPart.of("pieces", "no control symbol of one character in BPE", "one")
    texts = {text for text, _, _ in kinds[_NORMAL]}
    missing = {*itertools.chain(*texts)} - texts
    if missing:
        got = f"no {sorted(missing)[:5]}"
        raise UnsupportedPart.of("pieces", "a piece for each character of the others", got)
    merged = sorted((p for p in kinds[_NORMAL] if len(p[0]) > 1), key=lambda piece: -piece[1])
    if len({score for _, score, _ in merged}) < len(merged):
        raise UnsupportedPart.of("pieces", "another score for each merge of BPE", "equal ones")
    merges = [
        [text[:cut], text[cut:], rank]
        for rank, (text, _, _) in enumerate(merged)
        for cut in range(1, len(text))
        if text[:cut] in texts and text[cut:] in texts
    ]
    return {"pieces": [text for text, _, _ in kinds[_NORMAL]], "merges": merges}


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
