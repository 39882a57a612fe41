"""Added tokens in texts, special tokens around ids, and ids back to texts."""

import functools
import re

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.texts import (
    CharacterTable,
    Texts,
    Trie,
    bytes_of_letters,
    characters_of,
    follow,
    function_for,
    literal,
    repair_utf8,
    replaced,
    rows_of,
    selected,
)
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart, check_spellings


class AddedTokens(tf.Module):
    """Cuts texts at added tokens from the left, preferring the longest at each position."""

    def __init__(self, tokens, spellings):
        super().__init__(name="added_tokens")
        check_spellings(tokens, spellings)
        if "" in spellings:
            nothing = tokens[spellings.index("")].content
            raise UnsupportedPart.of("added_tokens", "something after normalization", nothing)
        self._trie = Trie({spelling: number for number, spelling in enumerate(spellings)})
        self._ids = np.array([token.id for token in tokens], np.int32)
        self._is_special = np.array([token.special for token in tokens])
        self._is_word = np.array([token.single_word for token in tokens])
        self._strips_before = np.array([token.lstrip for token in tokens], np.int32)
        self._strips_after = np.array([token.rstrip for token in tokens], np.int32)
        self._letters = CharacterTable(characters_of("word"))
        self._spaces = CharacterTable(characters_of("white_space"))

    def __call__(self, texts, rows, after, parses_special):
        """Cut texts, which may be pieces of longer ones, at special tokens too or not (bool)."""
        if not self._is_special.all():
            return self._cut(texts, rows, after, parses_special)

        # Most files have special tokens only, and most texts are not searched for them.
        def cut():
            pieces, *others = self._cut(texts, rows, after, True)
            return pieces.strings, *others

        kept = texts.strings, rows, after
        strings, rows, after = tf.cond(parses_special, cut, lambda: kept)
        return Texts.of(strings, is_valid=True), rows, after

    def _cut(self, texts, rows, after, parses_special):
        codes, owner = texts.codes  # [C]
        owner, size = tf.cast(owner, tf.int32), tf.cast(texts.size, tf.int32)
        text_end = tf.cumsum(tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, size))
        text_start = tf.concat([[0], text_end], axis=0)[:-1]  # [N]
        place, stop, number = self._found(codes, owner, text_start, text_end)
        # No other token may overlap a special token, even if it is not cut out.
        kept = parses_special | ~tf.gather(self._is_special, number)
        if self._is_word.any():
            text = tf.gather(owner, place)
            is_letter = tf.cast(self._letters.look_up(codes), tf.bool)
            is_letter = tf.concat([[False], is_letter, [False]], axis=0)  # of C - 1 to C + 1
            joins_left = tf.gather(is_letter, place) & (place > tf.gather(text_start, text))
            joins_right = tf.gather(is_letter, stop + 1) & (stop < tf.gather(text_end, text))
            kept &= ~(tf.gather(self._is_word, number) & (joins_left | joins_right))
        place, stop, number = selected(kept, place, stop, number)
        # In each text there is a piece before every token, and one more at the end.
        text = tf.gather(owner, place)
        count = 1 + tf.math.unsorted_segment_sum(tf.ones_like(text), text, size)  # [N]
        last = tf.cumsum(count) - 1
        before = tf.range(tf.size(place)) + text  # [M], the piece before each token
        num_pieces = tf.reduce_sum(count)

        def in_pieces(where, values):
            return tf.scatter_nd(where[:, tf.newaxis], values, [num_pieces])

        ends = tf.concat([last, before], axis=0)
        starts = tf.concat([last - count + 1, before + 1], axis=0)
        piece_start = in_pieces(starts, tf.concat([text_start, stop], axis=0))
        piece_end = in_pieces(ends, tf.concat([text_end, place], axis=0))
        next_id = in_pieces(ends, tf.concat([after, tf.gather(self._ids, number)], axis=0))
        places = tf.ragged.range(piece_start, piece_end)
        codes, piece = tf.gather(codes, places.values), rows_of(places.row_lengths())
        if self._strips_before.any() or self._strips_after.any():
            strips_end = in_pieces(before, tf.gather(self._strips_before, number))
            strips_start = in_pieces(before + 1, tf.gather(self._strips_after, number))
            kept = self._not_stripped(codes, piece, strips_start > 0, strips_end > 0)
            codes, piece = selected(kept, codes, piece)
        pieces = Texts(tf.cast(num_pieces, tf.int64), codes=codes, rows=piece)
        return pieces, tf.gather(rows, rows_of(count)), next_id

    def _found(self, codes, owner, text_start, text_end):
        """Return the start, end and number of the tokens from left to right, int32 `[M]` each."""
        end = tf.gather(text_end, owner)
        length_at, number_at = self._trie.longest(codes, end, tf.zeros_like(codes))
        place = tf.cast(tf.where(length_at > 0)[:, 0], tf.int32)
        stop = place + tf.gather(length_at, place)
        # How many may begin before each position: where the first that begins there stands.
        rank = tf.concat([[0], tf.cumsum(tf.cast(length_at > 0, tf.int32))], axis=0)  # [C + 1]
        start, goal = tf.gather(rank, text_start), tf.gather(rank, text_end)
        jumps = tf.gather(rank, stop) - tf.range(tf.size(place))
        is_found, _ = follow(*selected(start < goal, start, goal), jumps)
        place, stop = selected(is_found, place, stop)
        return place, stop, tf.gather(number_at, place)

    def _not_stripped(self, codes, piece, strips_start, strips_end):
        """bool `[C]`, without the white space at those starts and ends (bool `[P]`) of pieces."""
        place = tf.range(tf.size(codes))
        is_space = tf.cast(self._spaces.look_up(codes), tf.bool)
        # Of each piece, the first and the last place that is not white space.
        size, num_pieces = tf.size(codes), tf.size(strips_end)
        first = tf.math.unsorted_segment_min(tf.where(is_space, size, place), piece, num_pieces)
        last = tf.math.unsorted_segment_max(tf.where(is_space, -1, place), piece, num_pieces)
        first, last = tf.gather(first, piece), tf.gather(last, piece)
        at_start = (place < first) & tf.gather(strips_start, piece)
        at_end = (place > last) & tf.gather(strips_end, piece)
        return ~(at_start | at_end)


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
