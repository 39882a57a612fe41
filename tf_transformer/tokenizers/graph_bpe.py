"""Byte-level byte pair encoding out of core TensorFlow ops, so that a SavedModel takes strings.

B batch (texts), W distinct words of the batch, N symbols of all those words, T ids of one text.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.pipeline import (
    SPACE_PATTERN,
    SPECIAL_TOKENS,
    WORD_PATTERN,
    byte_alphabet,
)
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile

# After normalisation no control character is left, so this one can mark the ends of words.
_WORD_END = "\x01"


class GraphBPE(tf.Module):
    """The ids of `BPETokenizer`, exactly, inside a TensorFlow graph.

    Holds no Python state that a graph cannot: it works eagerly, inside `tf.function`, and in a
    SavedModel opened by a process that has TensorFlow alone. To export it by itself or inside
    another `tf.Module`, save the module: `encode_strings` and `decode_ids` are its graph functions.

    Sennrich et al. 2016 merge the best-ranked pair of a word again and again. Here every step
    merges one pair in each word of the batch at once, so the number of steps is that of the word
    with most merges, which the pipeline bounds at 24 letters, not that of the longest line.

    Args:
        file: a `TokenizerFile`.

    Example:
        >>> import os, tempfile
        >>> from tf_transformer.tokenizers import BPETokenizer
        >>> trained = BPETokenizer.train(["low lower lowest", "new newer newest"], vocab_size=300)
        >>> path = os.path.join(tempfile.mkdtemp(), "tokenizer.json")
        >>> trained.save(path)
        >>> graph = GraphBPE.from_file(path)
        >>> ids = graph.encode(["lower", ""])
        >>> ids.to_list() == trained.encode(["lower", ""])
        True
        >>> graph.decode(ids).numpy().tolist()
        [b'lower', b'']
    """

    pad_id = SPECIAL_TOKENS.index("<pad>")
    start_id = SPECIAL_TOKENS.index("<s>")
    end_id = SPECIAL_TOKENS.index("</s>")

    def __init__(self, file):
        super().__init__(name="graph_bpe")
        self.vocab_size = len(file.vocabulary)
        alphabet = byte_alphabet()
        ids = {token: number for number, token in enumerate(file.vocabulary)}
        bytes_of = {letter: byte for byte, letter in enumerate(alphabet)}
        self._id_of_byte = np.array([ids[letter] for letter in alphabet], np.int32)
        # Special tokens write nothing, which is how decoding drops them.
        self._bytes_of_id = np.array(
            [b""] * len(SPECIAL_TOKENS)
            + [
                bytes(bytes_of[letter] for letter in token)
                for token in file.vocabulary[len(SPECIAL_TOKENS) :]
            ],
            object,
        )
        merges = np.array(file.merges, np.int64).reshape(-1, 3)
        # One rank past the last stands for "no such pair"; it merges nothing, so its result is 0.
        self._no_merge = len(merges)
        self._result_of_rank = np.append(merges[:, 2], 0).astype(np.int32)
        # TensorFlow refuses an empty table, and a vocabulary of bytes alone has no merges: the key
        # -1, which no pair has, is always there.
        self._rank_of_pair = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                np.append(merges[:, 0] * self.vocab_size + merges[:, 1], -1),
                np.arange(len(merges) + 1, dtype=np.int32),
            ),
            default_value=self._no_merge,
        )

    @classmethod
    def from_file(cls, path):
        """Reads a `tokenizer.json` with the standard library only.

        Args:
            path: string or path of a file that `BPETokenizer.save` wrote.

        Returns:
            A `GraphBPE`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file holds another kind of tokenizer; the part is named.
        """
        return cls(TokenizerFile.read(path))

    def encode(self, strings):
        """Turns texts into ids, without start and end ids.

        Args:
            strings: string tensor `[B]` of UTF-8, or what converts to one. Broken bytes are read
                as U+FFFD; special tokens are plain text.

        Returns:
            int32 `tf.RaggedTensor` `[B, (T)]`; a blank text gives an empty row.

        Raises:
            ValueError: `strings` is not of rank 1.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        if strings.shape.rank not in (1, None):
            raise ValueError(
                f"strings: expected a string tensor of shape [batch], received {strings.shape}; "
                "wrap a single text as [text]"
            )
        return self.encode_strings(strings)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def encode_strings(self, strings):
        """`encode` as a graph function: string `[B]` -> int32 ragged `[B, (T)]`."""
        words = self._split_into_words(strings)
        # A batch repeats its common words: merge each once.
        distinct, index = tf.unique(words.values)
        ids_of_word = self._merge_words(distinct)
        ids = tf.gather(ids_of_word, index)  # [words of the batch, (ids)]
        return words.with_values(ids).merge_dims(1, 2)  # [B, (T)]

    def decode(self, ids):
        """Turns ids back into texts; pad, start and end ids are dropped.

        Args:
            ids: integers in `[0, vocab_size)`, a `tf.RaggedTensor` `[B, (T)]` or a tensor `[B, T]`.

        Returns:
            String tensor `[B]` of valid UTF-8; broken bytes become U+FFFD.

        Raises:
            ValueError: `ids` is not of rank 2, or not of integers.
            tf.errors.InvalidArgumentError: an id is outside the vocabulary.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(self.pad_id)
        ids = tf.convert_to_tensor(ids)
        if ids.shape.rank not in (2, None) or not ids.dtype.is_integer:
            raise ValueError(
                f"ids: expected integers of shape [batch, length], received {ids.dtype.name} of "
                f"shape {ids.shape}; wrap the ids of a single text as [ids]"
            )
        return self.decode_ids(tf.cast(ids, tf.int32))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def decode_ids(self, ids):
        """`decode` as a graph function: int32 `[B, T]` -> string `[B]`."""
        pieces = self._pieces(ids)  # [B, T]
        return _repair_utf8(tf.strings.reduce_join(pieces, axis=1))  # [B]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def pieces(self, ids):
        """What each token writes, as bytes that need not be whole characters.

        Args:
            ids: int32 `[T]`.

        Returns:
            String tensor `[T]`; pad, start and end write nothing.
        """
        return self._pieces(ids)

    def _pieces(self, ids):
        message = (
            f"ids: expected integers in [0, {self.vocab_size}); decode with the tokenizer that "
            "the model was trained with"
        )
        in_range = [
            tf.debugging.assert_non_negative(ids, message),
            tf.debugging.assert_less(ids, self.vocab_size, message),
        ]
        with tf.control_dependencies(in_range):
            return tf.gather(tf.constant(self._bytes_of_id, tf.string), ids)

    def _split_into_words(self, strings):
        """string `[B]` -> ragged string `[B, (words)]`; each row ends in one empty word."""
        text = tf.strings.regex_replace(_repair_utf8(strings), SPACE_PATTERN, " ")
        text = tf.strings.regex_replace(text, "^ | $", "")
        text = tf.strings.regex_replace(text, WORD_PATTERN, rf"\0{_WORD_END}")
        return tf.strings.split(text, _WORD_END)

    def _merge_words(self, words):
        """string `[W]` -> ragged int32 `[W, (ids)]`."""
        num_words = tf.size(words, out_type=tf.int64)
        # One flat run of symbols, not a padded [W, longest] matrix: it shrinks at every merge.
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)  # [N]
        symbols = tf.gather(self._id_of_byte, tf.cast(all_bytes, tf.int32))  # [N]
        owner = tf.repeat(tf.range(num_words), tf.strings.length(words))  # [N]
        num_open = tf.constant(1)
        _, symbols, owner = tf.while_loop(
            lambda num_open, symbols, owner: num_open > 0,
            lambda num_open, symbols, owner: self._merge_once(symbols, owner, num_words),
            (num_open, symbols, owner),
            shape_invariants=(num_open.shape, tf.TensorShape([None]), tf.TensorShape([None])),
        )
        return tf.RaggedTensor.from_value_rowids(symbols, owner, num_words)

    def _merge_once(self, symbols, owner, num_words):
        """Merges, in each word, the leftmost occurrence of its best-ranked pair.

        One occurrence only: a merge may create a pair of a better rank than the second one, and
        then the reference takes that first.
        """
        pairs = tf.cast(symbols[:-1], tf.int64) * self.vocab_size + tf.cast(symbols[1:], tf.int64)
        rank = tf.where(
            owner[:-1] == owner[1:], self._rank_of_pair.lookup(pairs), self._no_merge
        )  # [N - 1]
        best = tf.math.unsorted_segment_min(rank, owner[:-1], num_words)  # [W]
        is_best = (rank < self._no_merge) & (rank == tf.gather(best, owner[:-1]))
        place = tf.cast(tf.where(is_best)[:, 0], tf.int32)
        word = tf.gather(owner, place)
        is_leftmost = tf.concat([[True], word[1:] != word[:-1]], axis=0)[: tf.size(word)]
        place = tf.boolean_mask(place, is_leftmost)  # one place for each word that can merge
        merged = tf.gather(self._result_of_rank, tf.gather(rank, place))
        symbols = tf.tensor_scatter_nd_update(symbols, place[:, tf.newaxis], merged)
        keep = tf.tensor_scatter_nd_update(
            tf.fill(tf.shape(symbols), True),
            place[:, tf.newaxis] + 1,
            tf.fill(tf.shape(place), False),
        )
        return tf.size(place), tf.boolean_mask(symbols, keep), tf.boolean_mask(owner, keep)


def _repair_utf8(strings):
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")
