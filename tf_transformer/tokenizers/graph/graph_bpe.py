"""Byte pair encoding with core TensorFlow ops.

W words, N symbols of all those words, M merges.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.byte_fallback import ids_of_bytes
from tf_transformer.tokenizers.graph.character_table import CharacterTable
from tf_transformer.tokenizers.graph.characters import NUM_CODES
from tf_transformer.tokenizers.graph.graph_tokenizer import GraphTokenizer
from tf_transformer.tokenizers.graph.texts import starts_where, words_of_characters
from tf_transformer.tokenizers.graph.unknown import first_of_unknown
from tf_transformer.tokenizers.pipeline import byte_alphabet
from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


class GraphBPE(GraphTokenizer):
    """Produces exactly the ids of `BPETokenizer` inside a TensorFlow graph.

    Sennrich et al. 2016, section 3.2, repeatedly merge the best-ranked pair of a word. Here each
    step processes all words of the batch at once, and merges all pairs of a word that will be
    merged regardless of their neighbours; see `_merges_for_certain`.

    Args:
        file: a `TokenizerFile` of a byte-level or character-level BPE model.

    Raises:
        ValueError: If a part of the file is not supported; the message names the part.

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

    model_type = "BPE"

    def _build_model(self, file):
        model = file.model
        if model.get("dropout"):
            raise UnsupportedPart.of("model.dropout", None, model["dropout"])
        self._is_byte_level = _ends_in_bytes(file.content.get("pre_tokenizer"))
        if self._is_byte_level:
            self._build_bytes(model)
        else:
            self._build_characters(model)
        merges = file.merges
        # One rank past the last means "no such pair"; it merges nothing, so its result is 0.
        self._no_merge = len(merges)
        self._result_of_rank = np.append(merges[:, 2], 0).astype(np.int32)
        self._is_certain = np.append(_merges_for_certain(merges, self.vocab_size), False)
        # TensorFlow rejects an empty table, and a bytes-only vocabulary has no merges, so the key
        # -1, which matches no pair, is always present.
        self._rank_of_pair = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                np.append(merges[:, 0] * self.vocab_size + merges[:, 1], -1),
                np.arange(len(merges) + 1, dtype=np.int32),
            ),
            default_value=self._no_merge,
        )

    def _build_bytes(self, model):
        for part in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(part):
                raise UnsupportedPart.of(f"model.{part}", "none with ByteLevel", model[part])
        missing = [byte for byte, c in enumerate(byte_alphabet()) if c not in model["vocab"]]
        if missing:
            raise UnsupportedPart.of(
                "model.vocab", "all 256 bytes", f"none for the bytes {missing}"
            )
        ids = [model["vocab"][letter] for letter in byte_alphabet()]
        self._id_of_byte = np.array(ids, np.int32)

    def _build_characters(self, model):
        prefix = model.get("continuing_subword_prefix") or ""
        suffix = model.get("end_of_word_suffix") or ""
        vocabulary = model["vocab"]
        # One table for each position in a word: inside, last, first, first and last.
        self._id_of_character = [
            CharacterTable(_ids_of_characters(vocabulary, before, after))
            for before in (prefix, "")
            for after in ("", suffix)
        ]
        unknown = model.get("unk_token")
        self._unknown = -1 if unknown is None else vocabulary.get(unknown)
        if self._unknown is None:
            raise UnsupportedPart.of("model.unk_token", "a token of the vocabulary", unknown)
        self._fuses_unknown = model.get("fuse_unk", False)
        self._id_of_byte = None
        if model.get("byte_fallback"):
            self._id_of_byte = ids_of_bytes(vocabulary)
            if self._id_of_byte is not None and (prefix or suffix):
                raise UnsupportedPart.of("model.byte_fallback", "no prefix or suffix", True)

    def _words_of_tokens(self, file):
        if not self._is_byte_level:
            return super()._words_of_tokens(file)
        byte_of = {letter: byte for byte, letter in enumerate(byte_alphabet())}
        return [
            bytes(map(byte_of.get, token)) if set(token) <= byte_of.keys() else b""
            for token in file.vocabulary
        ]

    def _always_whole(self, file):
        if not file.model.get("ignore_merges"):
            return super()._always_whole(file)
        return np.array([token in file.model["vocab"] for token in file.vocabulary])

    def _cut_words(self, words):
        num_words = tf.size(words)
        # One flat vector of symbols instead of a padded [W, longest] matrix: it shrinks at every
        # merge.
        if self._is_byte_level:
            symbols, owner = self._bytes(words)
        else:
            symbols, owner = self._characters(words)
        num_merged = tf.constant(1)
        _, symbols, owner = tf.while_loop(
            lambda num_merged, symbols, owner: num_merged > 0,
            lambda num_merged, symbols, owner: self._merge(symbols, owner, num_words),
            (num_merged, symbols, owner),
            shape_invariants=(num_merged.shape, tf.TensorShape([None]), tf.TensorShape([None])),
        )
        return symbols, owner

    def _bytes(self, words):
        """string `[W]` -> int32 `[N]`, the id of each byte, and `[N]`, its word."""
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)  # [N]
        owner = tf.repeat(tf.range(tf.size(words)), tf.strings.length(words))
        return tf.gather(self._id_of_byte, tf.cast(all_bytes, tf.int32)), owner

    def _characters(self, words):
        """string `[W]` -> int32 `[N]`, the id of each character, and `[N]`, its word."""
        codes, owner, start, end = words_of_characters(words)
        place = tf.range(tf.size(codes))
        is_first = place == tf.gather(start, owner)
        is_last = place + 1 == tf.gather(end, owner)
        kind = 2 * tf.cast(is_first, tf.int32) + tf.cast(is_last, tf.int32)
        symbols = tf.stack([table.look_up(codes) for table in self._id_of_character], axis=1)
        symbols = tf.gather(symbols, kind, batch_dims=1)
        return tf.cond(
            tf.reduce_all(symbols >= 0),
            lambda: (symbols, owner),
            lambda: self._replace_unknown(codes, symbols, owner),
        )

    def _replace_unknown(self, codes, symbols, owner):
        is_unknown = symbols < 0
        if self._id_of_byte is not None:
            letters = tf.strings.unicode_encode(codes[:, tf.newaxis], "UTF-8")
            ids, source = self._bytes(letters)
            # A known character is one symbol; it stays at the position of its first byte.
            is_start = starts_where(source[1:] != source[:-1], source)
            symbols = tf.gather(symbols, source)
            kept = (symbols < 0) | is_start
            symbols = tf.where(symbols < 0, ids, symbols)
            return tf.boolean_mask(symbols, kept), tf.boolean_mask(tf.gather(owner, source), kept)
        if self._unknown < 0:  # the reference drops such characters
            return tf.boolean_mask(symbols, ~is_unknown), tf.boolean_mask(owner, ~is_unknown)
        symbols = tf.where(is_unknown, self._unknown, symbols)
        if not self._fuses_unknown:
            return symbols, owner
        kept = first_of_unknown(is_unknown, owner)
        return tf.boolean_mask(symbols, kept), tf.boolean_mask(owner, kept)

    def _merge(self, symbols, owner, num_words):
        """Merges, in each word, the certain pairs, or if there are none its best-ranked pair.

        Of the best-ranked pair only the leftmost occurrence is merged: the merge may create a pair
        of better rank than the second occurrence, which the reference then merges first.
        """
        pairs = tf.cast(symbols[:-1], tf.int64) * self.vocab_size + tf.cast(symbols[1:], tf.int64)
        owner_of_pair = owner[:-1]
        rank = tf.where(
            owner_of_pair == owner[1:], self._rank_of_pair.lookup(pairs), self._no_merge
        )  # [N - 1]
        is_certain = tf.gather(self._is_certain, rank)
        # Certain pairs come before all others of their word.
        order = tf.where(is_certain, -1, rank)
        best = tf.math.unsorted_segment_min(order, owner_of_pair, num_words)  # [W]
        is_best = (rank < self._no_merge) & (order == tf.gather(best, owner_of_pair))
        place = tf.cast(tf.where(is_best)[:, 0], tf.int32)
        word = tf.gather(owner, place)
        is_leftmost = starts_where(word[1:] != word[:-1], word)
        place = tf.boolean_mask(place, is_leftmost | tf.gather(is_certain, place))
        merged = tf.gather(self._result_of_rank, tf.gather(rank, place))
        symbols = tf.tensor_scatter_nd_update(symbols, place[:, tf.newaxis], merged)
        keep = tf.tensor_scatter_nd_update(
            tf.fill(tf.shape(symbols), True),
            place[:, tf.newaxis] + 1,
            tf.fill(tf.shape(place), False),
        )
        return tf.size(place), tf.boolean_mask(symbols, keep), tf.boolean_mask(owner, keep)


def _merges_for_certain(merges, vocab_size):
    """The merges whose pairs can be merged immediately, wherever they occur.

    Let the pair (a, b) of rank r merge into m. Another merge can break the pair only by taking a
    from the left or b from the right. If all such merges rank after r, the pair is merged in any
    case. If all merges of m also rank after r, merging early does not affect merges that rank
    before r. In a trained list the second condition always holds, and the first holds for most
    merges, such as those of the bytes of one character.

    Args:
        merges: int64 `[M, 3]`, the left, right and merged ids, best rank first.
        vocab_size: integer.

    Returns:
        bool `[M]`.
    """
    left, right, merged = merges.T
    ranks = np.arange(len(merges))
    first_as_left, first_as_right = np.full((2, vocab_size), len(merges))
    np.minimum.at(first_as_left, left, ranks)
    np.minimum.at(first_as_right, right, ranks)
    first = np.minimum(first_as_left, first_as_right)
    breaks = np.minimum(first_as_right[left], first_as_left[right])
    return (breaks > ranks) & (first[merged] > ranks)


def _ends_in_bytes(pre_tokenizer):
    """Whether ByteLevel is the last step; it is not supported anywhere else."""
    parts = [pre_tokenizer]
    if pre_tokenizer and pre_tokenizer["type"] == "Sequence":
        parts = pre_tokenizer["pretokenizers"]
    kinds = [part and part["type"] for part in parts]
    if "ByteLevel" in kinds[:-1]:
        raise UnsupportedPart.of("pre_tokenizer", "ByteLevel as the last step", kinds)
    return kinds[-1:] == ["ByteLevel"]


def _ids_of_characters(vocabulary, prefix, suffix):
    """int32 `[0x110000]`, the id of each character with prefix and suffix; -1 if there is none."""
    ids = np.full(NUM_CODES, -1, np.int32)
    for token, number in vocabulary.items():
        if token.startswith(prefix) and token.endswith(suffix):
            character = token[len(prefix) : len(token) - len(suffix)]
            if len(character) == 1:
                ids[ord(character)] = number
    return ids
