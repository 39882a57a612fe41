"""Byte pair encoding with core TensorFlow ops.

W words, N symbols of all those words, M merges.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.byte_symbols import ByteSymbols, bytes_of_letters
from tf_transformer.tokenizers.graph.character_symbols import CharacterSymbols
from tf_transformer.tokenizers.graph.graph_tokenizer import GraphTokenizer
from tf_transformer.tokenizers.graph.texts import starts_where
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
        symbols = ByteSymbols if self._is_byte_level else CharacterSymbols
        self._symbols = symbols(model)
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

    def _words_of_tokens(self, file):
        if not self._is_byte_level:
            return super()._words_of_tokens(file)
        return [bytes_of_letters(token) or b"" for token in file.vocabulary]

    def _is_whole(self, file, words):
        is_whole = super()._is_whole(file, words)
        if file.model.get("ignore_merges"):
            is_whole |= [token in file.model["vocab"] for token in file.vocabulary]
        return is_whole

    def _cut_words(self, words):
        num_words = tf.size(words)
        # One flat vector of symbols instead of a padded [W, longest] matrix: it shrinks at every
        # merge.
        symbols, owner = self._symbols(words)
        num_merged = tf.constant(1)
        _, symbols, owner = tf.while_loop(
            lambda num_merged, symbols, owner: num_merged > 0,
            lambda num_merged, symbols, owner: self._merge(symbols, owner, num_words),
            (num_merged, symbols, owner),
            shape_invariants=(num_merged.shape, tf.TensorShape([None]), tf.TensorShape([None])),
        )
        return symbols, owner

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
