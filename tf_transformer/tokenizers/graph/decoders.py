"""Special tokens around ids, and ids back to texts."""

import functools
import re

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import (
    bytes_of_letters,
    function_for,
    literal,
    repair_utf8,
    replaced,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart


def frame_of(part, kind="single"):
    """The special tokens that a file adds to a "single" text or a "pair", see `frame`."""
    return [] if part is None else function_for("post_processor", part, _MAKERS)(part, kind)


def _bert(part, kind):
    start, end = part["cls"][1], part["sep"][1]
    frame = [(start, 0), (None, 0), (end, 0)]
    return frame if kind == "single" else [*frame, (None, 1), (end, 1)]


def _roberta(part, kind):
    frame, end = _bert(part, "single"), (part["sep"][1], 0)
    return frame if kind == "single" else [*frame, end, (None, 0), end]


def _sequence(part, kind):
    frames = [frame for inner in part["processors"] if (frame := frame_of(inner, kind))]
    if len(frames) > 1:  # the second would apply to each token of the first
        raise UnsupportedPart.of("post_processor", "one that adds tokens", part["processors"])
    return frames[0] if frames else []


def _template(part, kind):
    frame, names = [], []
    for piece in part[kind]:
        [(which, content)] = piece.items()
        is_text = which == "Sequence"
        names += [content["id"]] if is_text else []
        ids = [None] if is_text else part["special_tokens"][content["id"]]["ids"]
        frame += [(number, content.get("type_id", 0)) for number in ids]
    if names != (["A"] if kind == "single" else ["A", "B"]):
        expected = "the text once" if kind == "single" else "both texts once, in their order"
        raise UnsupportedPart.of(f"post_processor.{kind}", expected, part[kind])
    return frame if len(frame) > len(names) else []


_MAKERS = {
    "BertProcessing": _bert,
    "ByteLevel": lambda *_: [],  # it changes offsets only
    "RobertaProcessing": _roberta,
    "Sequence": _sequence,
    "TemplateProcessing": _template,
}


# The replacements of WordPiece's English clean-up, in order.
_CLEANUP = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't")),
    *((" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)

_METASPACE = "\N{LOWER ONE EIGHTH BLOCK}"

# Position of a token in its text, as flags: a token may be both first and last.
_MIDDLE, _FIRST, _LAST = 0, 1, 2
_POSITIONS = range(4)

_BYTE_TOKEN = re.compile(r"<0x(\+[0-9A-Fa-f]|[0-9A-Fa-f]{2})>", re.ASCII)


class Decoder:
    """Joins the text of tokens, as a file's "decoder" describes."""

    def __init__(self, file, spelling):
        part = file.content.get("decoder")
        steps = part["decoders"] if part and part["type"] == "Sequence" else [part]
        names = [step and step.get("type") for step in steps]
        end_of_tokens = names.index("Fuse") if "Fuse" in names else len(steps)
        on_tokens = [_token_step(step) for step in steps[:end_of_tokens]]
        self._on_texts = [_text_step(step) for step in steps[end_of_tokens + 1 :]]
        self._replaces = "Replace" in names[end_of_tokens:]
        if {"ByteFallback", "ByteLevel"} & set(names[: max(end_of_tokens - 1, 0)]):
            expected = "Fuse right after ByteFallback and ByteLevel"
            raise UnsupportedPart.of("decoder", expected, names)
        # One extra id past the vocabulary has no text; it is used as padding.
        size = len(file.vocabulary)
        self._pieces = np.full((len(_POSITIONS), size + 1), b"", object)
        for number, token in enumerate(file.vocabulary):
            for position in _POSITIONS if token not in file.special_tokens else ():
                text = spelling.get(token, token)
                for step in on_tokens:
                    text = step(text, position)
                text = text if isinstance(text, bytes) else text.encode("utf-8")
                self._pieces[position, number] = text
        self._is_special = np.array([t in file.special_tokens for t in file.vocabulary] + [True])
        # Of tokens without a text at the start, the next is the first one, in SentencePiece.
        self._is_skipped = self._is_special
        if any(step and step.get("remove_extra_whitespaces") for step in steps):
            self._is_skipped = self._is_special | (self._pieces[_FIRST] == b"")
        self._is_byte = np.zeros(size + 1, bool)
        if "ByteFallback" in names[:end_of_tokens]:
            self._is_byte[:size] = [bool(_BYTE_TOKEN.fullmatch(t)) for t in file.vocabulary]

    def pieces(self, ids):
        """int32 ids of any shape -> string, the text of each in the middle of a text."""
        return tf.gather(tf.constant(self._pieces[_MIDDLE], tf.string), ids)

    def texts(self, ids):
        """int32 `[B, T]` in [0, V], where V is padding -> string `[B]` of valid UTF-8."""
        if (self._pieces == self._pieces[_MIDDLE]).all():
            pieces = self.pieces(ids)  # [B, T]
        else:
            places = tf.stack([self._positions(ids), ids], axis=-1)
            pieces = tf.gather_nd(tf.constant(self._pieces, tf.string), places)
        if self._is_byte.any():
            pieces = self._repair_runs_of_bytes(ids, pieces)
        texts = repair_utf8(tf.strings.reduce_join(pieces, axis=1))  # [B]
        for step in self._on_texts:
            texts = step(texts)
        return texts

    def settled(self, ids):
        """The beginnings of `texts` that no further ids change."""
        if self._replaces:
            raise UnsupportedPart.of("decoder", "no Replace after Fuse", "one")
        is_kept = ~tf.gather(self._is_special, ids)
        if (self._pieces[_LAST] != self._pieces[_MIDDLE]).any():  # the last one may not stay it
            kept = tf.cast(is_kept, tf.int32)
            is_kept &= tf.cumsum(kept, axis=1, reverse=True, exclusive=True) > 0
        if self._is_byte.any():  # a further byte may break a run of them
            others = tf.cast(is_kept & ~tf.gather(self._is_byte, ids), tf.int32)
            is_kept &= tf.cumsum(others, axis=1, reverse=True) > 0
        texts = self.texts(tf.where(is_kept, ids, len(self._is_special) - 1))
        return tf.strings.regex_replace(texts, "\N{REPLACEMENT CHARACTER}+$", "")

    def _positions(self, ids):
        """Position of each id in its row, ignoring special tokens: `[B, T]`."""
        is_kept = tf.cast(~tf.gather(self._is_special, ids), tf.int32)
        number = tf.cumsum(is_kept, axis=1)
        is_counted = tf.cast(~tf.gather(self._is_skipped, ids), tf.int32)
        is_first = tf.cast(tf.cumsum(is_counted, axis=1, exclusive=True) == 0, tf.int32)
        is_last = tf.cast(number == number[:, -1:], tf.int32)
        return is_kept * (_FIRST * is_first + _LAST * is_last)

    def _repair_runs_of_bytes(self, ids, pieces):
        """Replace each byte in a run of byte tokens that is not valid UTF-8 with U+FFFD."""
        num_rows, length = tf.unstack(tf.shape(ids))
        is_byte = tf.gather(self._is_byte, ids)
        is_special = tf.gather(self._is_special, ids)  # these are ignored
        run = tf.cumsum(tf.cast(~is_byte & ~is_special, tf.int32), axis=1)
        run += tf.range(num_rows)[:, tf.newaxis] * (length + 1)
        others = num_rows * (length + 1)
        run = tf.where(is_byte, run, others)  # [B, T]
        whole = tf.strings.unsorted_segment_join(pieces, run, others + 1)
        is_valid = tf.strings.unicode_transcode(whole, "UTF-8", "UTF-8", errors="ignore") == whole
        is_broken = is_byte & ~tf.gather(is_valid, run)
        return tf.where(is_broken, "\N{REPLACEMENT CHARACTER}", pieces)


def _token_step(part):
    """Return a function of a token's text (string or bytes) and its position."""
    if part is None:
        return lambda text, position: text if position & _FIRST else f" {text}"
    step = function_for("decoder", part, _TOKEN_STEPS, also=("Fuse", "Strip"))
    return functools.partial(step, part)


def _byte_level(part, text, position):
    spelled = bytes_of_letters(text)
    return text if spelled is None else spelled


def _wordpiece(part, text, position):
    if not position & _FIRST:
        prefix = part["prefix"]
        text = text[len(prefix) :] if text.startswith(prefix) else f" {text}"
    for dirty, clean in _CLEANUP if part["cleanup"] else ():
        text = text.replace(dirty, clean)
    return text


def _metaspace(part, text, position):
    is_stripped = position & _FIRST and part.get("prepend_scheme", "always") != "never"
    return text.replace(part["replacement"], "" if is_stripped else " ")


def _sentencepiece(part, text, position):
    if position & _FIRST and (part["add_dummy_prefix"] or part["remove_extra_whitespaces"]):
        text = text.removeprefix(_METASPACE)
    return text.replace(_METASPACE, " ")


def _byte_fallback(part, text, position):
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text


def _replace(part, text, position):
    return text.replace(_literal_pattern(part), part["content"])


def _bpe(part, text, position):
    return text.replace(part["suffix"], "" if position & _LAST else " ")


_TOKEN_STEPS = {
    "BPEDecoder": _bpe,
    "ByteFallback": _byte_fallback,
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "Replace": _replace,
    "SentencePiece": _sentencepiece,
    "WordPiece": _wordpiece,
}


def _text_step(part):
    """Return a function of whole texts, string `[B]` -> string `[B]`."""
    if part["type"] == "Strip" and part["stop"] == 0:
        pattern = f"^(?:{literal(part['content'])}){{0,{part['start']}}}"
        return lambda texts: replaced(texts, pattern, "")
    if part["type"] == "Replace":
        pattern = literal(_literal_pattern(part))
        return lambda texts: replaced(texts, pattern, part["content"])
    raise UnsupportedPart.of("decoder", "Strip (with stop 0) or Replace after Fuse", part)


def _literal_pattern(part):
    [(kind, pattern)] = part["pattern"].items()
    if kind != "String" or not pattern:
        raise UnsupportedPart.of("decoder.pattern", "a String", part["pattern"])
    return pattern
