"""Base class of the tokenizers built from core TensorFlow ops.

B batch (texts), T ids of one text, W distinct words of the batch, C characters, V vocabulary.
"""

import functools
from numbers import Integral
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer import tokenizers as package
from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers.graph.decoders import AddedTokens, Decoder, frame_of
from tf_transformer.tokenizers.graph.offsets import Offsets
from tf_transformer.tokenizers.graph.texts import (
    Texts,
    changes,
    following,
    lookup_table,
    num_bytes,
    rows_of,
)
from tf_transformer.tokenizers.graph.words import Normalizer, build_pre_tokenizer
from tf_transformer.tokenizers.pipeline import SpecialTokenRoles
from tf_transformer.tokenizers.tokenizer_file import (
    TokenizerFile,
    UnsupportedPart,
    read_sentencepiece,
)

# What Python and TensorFlow raise for a setting of the wrong type, such as a list for a string.
_OF_ANOTHER_TYPE = (AttributeError, IndexError, OverflowError, TypeError, tf.errors.OpError)


class GraphTokenizer(SpecialTokenRoles, tf.Module):
    """Produces exactly the ids of the Rust package `tokenizers` inside a TensorFlow graph.

    Works eagerly, inside `tf.function`, and in a SavedModel loaded by a process that has only
    TensorFlow. To export it, alone or as part of another `tf.Module`, save the module:
    `encode_strings` and `decode_ids` are its graph functions. Each distinct word of a batch is
    tokenized once, and words that are a single token, which most are, without running the model.
    Special tokens, added tokens and the file's other settings mean the same as in `Tokenizer`.

    Args:
        file: a `TokenizerFile`.

    Raises:
        ValueError: If a part of the file is not supported; the message names the part.

    Example:
        >>> from tf_transformer.tokenizers import UnigramTokenizer
        >>> UnigramTokenizer.train(["low lower lowest"] * 9, vocab_size=30).save("tokenizer.json")
        >>> graph = GraphTokenizer.from_file("tokenizer.json")
        >>> type(graph).__name__, graph.decode(graph.encode(["lowest"])).numpy().tolist()
        ('GraphUnigram', [b'lowest'])
    """

    model_type = None
    _sizes = None  # or the number of bytes of each token, int32 `[V]`, if it has only bytes

    def __init__(self, file):
        super().__init__(name=f"graph_{self.model_type.lower()}")
        if file.model["type"] != self.model_type:
            raise UnsupportedPart.of("model.type", self.model_type, file.model["type"])
        self._file = file
        self.special_tokens = file.special_tokens
        self.vocab_size = len(file.vocabulary)
        part = file.content.get
        try:
            self._normalize = Normalizer(part("normalizer"))
            self._build_added_tokens(file)
            self._split = build_pre_tokenizer(part("pre_tokenizer"), part("normalizer") is None)
            self._decoder = Decoder(file, self._spelling)
            ids = [number for number, _ in frame_of(part("post_processor"))] or [None]
            place = ids.index(None)
            self._before, self._after = ids[:place], ids[place + 1 :]
            self._build_model(file)
            self._build_words(file)
        except KeyError as error:
            raise UnsupportedPart("path", "parts with all settings", f"no {error}") from error
        except _OF_ANOTHER_TYPE as error:
            expected = "parts with settings of the right type"
            raise UnsupportedPart("path", expected, f"another: {error}") from error

    def __reduce__(self):
        return type(self), (self._file,)

    @classmethod
    def from_file(cls, path):
        """Read a `tokenizer.json`, or a `.model` or `.spm` of SentencePiece, of any model.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file or a part of it is not supported; the message names the part.
        """
        is_sentencepiece = Path(path).suffix in (".model", ".spm")
        file = (read_sentencepiece if is_sentencepiece else TokenizerFile.read)(path)
        try:
            return cls.of(file)
        except UnsupportedPart as error:
            expected = "a file that can run in a graph"
            remedy = f"{error} The Python tokenizer can read a tokenizer.json."
            raise UnsupportedPart("path", expected, path, remedy) from error

    @classmethod
    def of(cls, file):
        """Return the graph tokenizer for the model of a `TokenizerFile`."""
        # By its exported name, since the module of a subclass imports this one.
        made = getattr(package, f"Graph{file.model['type']}") if cls is GraphTokenizer else cls
        return made(file)

    @property
    def vocabulary(self):
        """Tuple of V strings, the tokens in order of their ids."""
        return self._file.vocabulary

    @property
    def added_tokens(self):
        """Tuple of `AddedToken`s, of the file."""
        return self._file.added_tokens

    def frame(self, texts=1):
        """The special tokens that the file adds around one text, or around and between two.

        A list of (id, segment), in order, with the id None for a text; empty if it adds none.
        ValueError if the file adds them to a pair in a way that is not supported.
        """
        part = self._file.content.get("post_processor")
        try:
            return frame_of(part, "single" if texts == 1 else "pair")
        except (KeyError, *_OF_ANOTHER_TYPE) as error:
            expected = "settings of the right type"
            raise UnsupportedPart.of("post_processor", expected, error) from error

    def encode(self, strings, add_special_tokens=False, parse_special_tokens=False):
        """Turn texts into ids.

        Args:
            strings: UTF-8 string tensor `[B]`, or a value that converts to one. Invalid bytes are
                read as U+FFFD; added tokens that are not special are found.
            add_special_tokens, parse_special_tokens: bool, see `Tokenizer.encode`.

        Returns:
            int32 `tf.RaggedTensor` `[B, (T)]`; a blank text gives an empty row.

        Raises:
            ValueError: If `strings` is not of rank 1.
        """
        ids = self.encode_strings(_checked_strings(strings), parse_special_tokens)
        return self.add_special_tokens(ids) if add_special_tokens else ids

    def encode_dense(
        self, strings, length=None, add_special_tokens=False, parse_special_tokens=False
    ):
        """Turn texts into a matrix of ids, padded and truncated at the end.

        Args:
            strings, add_special_tokens, parse_special_tokens: same as in `encode`; special tokens
                that are added after the text are not truncated.
            length: integer T; by default the length of the longest text.

        Returns:
            `(ids, mask)`: int32 `[B, T]` and bool `[B, T]`, False at padding.

        Raises:
            ValueError: See `encode`; or if `length` is not an integer or too small for one token,
                or there is no padding token.
        """
        around = len(self._before) + len(self._after) if add_special_tokens else 0
        if length is not None and (not isinstance(length, Integral) or length <= around):
            expected = f"an integer of at least {around + 1}, or None to fit the longest text"
            raise ArgumentError("length", expected, f"{length!r}")
        rows = self.encode(strings, parse_special_tokens=parse_special_tokens)
        if length is not None:
            rows = rows[:, : length - around]
        if add_special_tokens:
            rows = self.add_special_tokens(rows)
        ids = rows.to_tensor(self.pad_id, shape=None if length is None else [None, length])
        return ids, tf.sequence_mask(rows.row_lengths(), tf.shape(ids)[1])

    def add_special_tokens(self, ids):
        """Add the file's special tokens around each row: int32 ragged `[B, (T)]`."""
        return framed(ids, self._before, self._after)

    def encode_with_offsets(self, strings):
        """Turn texts into ids, as `encode` does, with their positions, as in the Rust package.

        Returns:
            `(ids, offsets)`: int32 `tf.RaggedTensor`s `[B, (T)]` and `[B, (T), 2]`; an offset is
            the start and the end in characters (code points) of the original text. Tokens that are
            parts of one character share its offset.

        Raises:
            ValueError: If `strings` is not of rank 1, or the file has a part whose offsets are not
                exact here; the message names it.
        """
        return self.locate(_checked_strings(strings))[:2]

    @functools.cached_property
    def _offsets(self):
        return Offsets(self._file)

    def locate(self, strings):
        """`encode_with_offsets` in a graph, and the number of each token's word, `[B, (T)]`."""
        offsets, texts = self._offsets, Texts.of(strings)
        codes, rows = texts.codes
        counts = tf.math.unsorted_segment_sum(tf.ones_like(codes), rows, texts.size)
        texts.source = tf.ragged.range(counts).values
        texts = self._normalize(texts)
        words, source = self._split(texts), offsets.of_words(texts)
        distinct, index = tf.unique(words.values)
        if self._sizes is not None:
            ids, lengths = self._ids_of_words(distinct), tf.strings.length(distinct)
            start = tf.cumsum(tf.gather(self._sizes, ids.values), exclusive=True)
            codes = tf.strings.unicode_decode(words.values, "UTF-8").values
            source = tf.gather(source, rows_of(num_bytes(codes)))
        else:
            (ids, start), lengths = self._cut(distinct), tf.strings.length(distinct, "UTF8_CHAR")
        if start is None:
            expected = "for offsets Unigram without bytes, WordPiece or byte-level BPE"
            raise UnsupportedPart.of("model", expected, self.model_type)
        # Tokens cover their words without gaps.
        end = following(start, tf.reduce_sum(lengths))
        begin = tf.gather(tf.cumsum(lengths, exclusive=True), rows_of(ids.row_lengths()))
        tokens = ids.with_values(tf.stack([ids.values, start - begin, end - begin], axis=1))
        tokens = tf.gather(tokens, index)  # [words of the batch, (ids), 3]
        word = rows_of(tokens.row_lengths())
        begin = tf.cumsum(tf.gather(lengths, index), exclusive=True)
        ids, start, end = tf.unstack(tokens.values, axis=1)
        begin = tf.gather(begin, word)
        places = [tf.gather(source, begin + start), tf.gather(source, begin + end - 1) + 1]
        rows = tf.gather(rows_of(words.row_lengths()), word)
        ids = tf.RaggedTensor.from_value_rowids(ids, rows, words.nrows(), validate=False)
        places = ids.with_values(tf.stack(places, axis=1))
        return ids, offsets.trimmed(ids, places), ids.with_values(word)

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.bool)],
        autograph=False,
    )
    def encode_strings(self, strings, parse_special_tokens=False):
        """`encode` as a graph function: string `[B]` and bool -> int32 ragged `[B, (T)]`."""
        texts = Texts.of(strings)
        # Of each piece of a text: the number of the text, and the added token after the piece.
        row, added = tf.range(tf.size(strings)), tf.fill(tf.shape(strings), -1)
        if self._raw_tokens:
            texts, row, added = self._raw_tokens(texts, row, added, parse_special_tokens)
        texts.is_start = changes(row)
        texts = self._normalize(texts)
        if self._normalized_tokens:
            texts, row, added = self._normalized_tokens(texts, row, added, parse_special_tokens)
        texts.is_start = changes(row)
        words = self._split(texts)
        distinct, index = tf.unique(words.values)
        ids = tf.gather(self._ids_of_words(distinct), index)  # [words of the batch, (ids)]
        ids = words.with_values(ids).merge_dims(1, 2)  # [B or pieces, (T)]
        if not self._file.added_tokens:
            return ids
        size = tf.size(strings, tf.int64)

        def with_added():
            counts = tf.cast(added >= 0, tf.int64)
            tokens = tf.boolean_mask(added, added >= 0)
            tokens = tf.RaggedTensor.from_row_lengths(tokens, counts, validate=False)
            pieces, rows = tf.concat([ids, tokens], axis=1), tf.cast(row, tf.int64)
            pieces = tf.RaggedTensor.from_value_rowids(pieces, rows, size, validate=False)
            return pieces.merge_dims(1, 2)  # [B, (T)]

        return tf.cond(ids.nrows() > size, with_added, lambda: ids)

    def decode(self, ids):
        """Turn ids back into texts; special tokens are dropped.

        Args:
            ids: integers in `[0, vocab_size)`, a `tf.RaggedTensor` `[B, (T)]` or a tensor `[B, T]`.

        Returns:
            String tensor `[B]` of valid UTF-8; invalid bytes become U+FFFD.

        Raises:
            ValueError: If `ids` is not of rank 2 or not an integer tensor.
            tf.errors.InvalidArgumentError: If an id is outside the vocabulary.
        """
        ids = ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
        if ids.shape.rank not in (2, None) or not ids.dtype.is_integer:
            got = f"{ids.dtype.name} of shape {ids.shape}"
            remedy = "Wrap the ids of a single text as [ids]."
            raise ArgumentError("ids", "integers of shape [batch, length]", got, remedy)
        # Checked before the cast to int32, which could wrap a large id into the valid range.
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.with_flat_values(tf.cast(self._checked(ids.flat_values), tf.int32))
            return self._texts(ids.to_tensor(self.vocab_size))
        return self.decode_ids(tf.cast(self._checked(ids), tf.int32))

    def settled(self, ids):
        """The beginnings of `decode` that no further ids change: ragged int32 `[B, (T)]`.

        ValueError if the file replaces parts of whole texts.
        """
        return self._settled(ids.to_tensor(self.vocab_size))

    # Graph functions, so that an exported graph has the texts of all tokens once.
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def _texts(self, ids):
        return self._decoder.texts(ids)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def _settled(self, ids):
        return self._decoder.settled(ids)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def decode_ids(self, ids):
        """`decode` as a graph function: int32 `[B, T]` -> string `[B]`."""
        return self._texts(self._checked(ids))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def pieces(self, ids):
        """int32 `[T]` -> string `[T]`, the text (bytes) of each token inside a text."""
        return self._decoder.pieces(self._checked(ids))

    @tf.function(input_signature=[], autograph=False)
    def special_ids(self):
        """`ids_of_roles` as a graph function, for a loaded SavedModel: dict of role -> int32."""
        return {role: tf.constant(number) for role, number in self.ids_of_roles.items()}

    def _checked(self, ids):
        message = f"ids: expected integers in [0, {self.vocab_size}); "
        message += "decode with the tokenizer that the model was trained with"
        size = tf.cast(self.vocab_size, ids.dtype)
        least = tf.debugging.assert_non_negative(ids, message)
        with tf.control_dependencies([least, tf.debugging.assert_less(ids, size, message)]):
            return tf.identity(ids)

    def _ids_of_words(self, words):
        """string `[W]` -> ragged int32 `[W, (ids)]`."""
        known = self._id_of_word.lookup(words)
        is_known = known >= 0
        places = tf.concat([tf.where(is_known), tf.where(~is_known)], axis=0)[:, 0]
        known = tf.RaggedTensor.from_uniform_row_length(tf.boolean_mask(known, is_known), 1)
        ids, _ = self._cut(tf.boolean_mask(words, ~is_known))
        ids = tf.concat([known, ids], axis=0)
        return tf.gather(ids, tf.math.invert_permutation(places))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _cut(self, words):
        """`_cut_words` with ragged ids, int32 `[W, (ids)]`; one trace serves table and texts."""
        ids, owner, start = self._cut_words(words)
        owner, size = tf.cast(owner, tf.int64), tf.size(words, tf.int64)
        return tf.RaggedTensor.from_value_rowids(ids, owner, size, validate=False), start

    def _build_added_tokens(self, file):
        """Build the search for added tokens before and after normalization, or None."""
        self._raw_tokens = self._normalized_tokens = None
        self._spelling = {}  # of the tokens that are found after normalization
        raw = [token for token in file.added_tokens if not token.normalized]
        if raw:
            self._raw_tokens = AddedTokens(raw, [token.content for token in raw])
        normalized = [token for token in file.added_tokens if token.normalized]
        if normalized:
            contents = [token.content for token in normalized]
            texts = self._normalize(Texts.of(tf.constant(contents)))
            spellings = [spelling.decode("utf-8") for spelling in texts.strings.numpy()]
            self._normalized_tokens = AddedTokens(normalized, spellings)
            self._spelling = dict(zip(contents, spellings, strict=True))

    def _build_model(self, file):
        raise NotImplementedError  # sets what `_cut_words` needs

    def _cut_words(self, words):
        """Cut words, string `[W]`: the ids, the word of each, and where it starts, int32 `[N]`."""
        # The starts count the characters of all words; None if the model's tokens do not cover
        # words without gaps, or have `_sizes`.
        raise NotImplementedError

    def _words_of_tokens(self, file):
        """The text of each token as a word, in order of ids: list of bytes."""
        return [token.encode("utf-8") for token in file.vocabulary]

    def _is_whole(self, file, words):
        """Return whether the text of each token is tokenized as it; BPE's merges may not."""
        ids = np.flatnonzero(words != b"")
        cut, _ = self._cut(tf.constant(words[ids]))
        first = np.append(cut.values.numpy(), -1)[cut.row_starts().numpy()]
        is_whole = np.zeros(len(words), bool)
        is_whole[ids] = (cut.row_lengths().numpy() == 1) & (first == ids)
        return is_whole

    def _build_words(self, file):
        """Build the table of words that are a single token."""
        words = np.array(self._words_of_tokens(file), object)
        ids = np.flatnonzero(self._is_whole(file, words) & (words != b"")).astype(np.int32)
        self._id_of_word = lookup_table(tf.constant([b"", *words[ids]]), tf.constant([-1, *ids]))


def _checked_strings(strings):
    strings = tf.convert_to_tensor(strings, tf.string)
    if strings.shape.rank not in (1, None):
        expected, remedy = "a string tensor of shape [batch]", "Wrap a single text as [text]."
        raise ArgumentError("strings", expected, strings.shape, remedy)
    return strings


def framed(ids, before, after):
    """Put the same ids before and after each row: int32 ragged `[B, (T)]`."""

    def repeated(side):
        row = tf.constant([side], tf.int32, [1, len(side)])
        return tf.RaggedTensor.from_tensor(tf.tile(row, [ids.nrows(), 1]))

    return tf.concat([repeated(before), ids, repeated(after)], axis=1)
