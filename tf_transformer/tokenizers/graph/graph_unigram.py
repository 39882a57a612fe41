"""The Unigram language model with core TensorFlow ops.

W words, C code points of all those words, M matches of tokens in them, L the longest match.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.byte_fallback import ids_of_bytes
from tf_transformer.tokenizers.graph.follow import follow
from tf_transformer.tokenizers.graph.graph_tokenizer import GraphTokenizer
from tf_transformer.tokenizers.graph.texts import words_of_characters
from tf_transformer.tokenizers.graph.trie import Trie
from tf_transformer.tokenizers.graph.unknown import first_of_unknown
from tf_transformer.tokenizers.tokenizer_file import UNKNOWN_PENALTY
from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


class GraphUnigram(GraphTokenizer):
    """Produces exactly the ids of `UnigramTokenizer` inside a TensorFlow graph.

    Kudo 2018, section 3.2: the segmentation of a word with the highest total log-probability,
    found with the Viterbi algorithm, in float64 as in the reference. Each step advances one
    position in all words at once. Of two equal paths to a position, the one with the longest last
    token wins; adjacent unknown characters become one id.

    Args:
        file: a `TokenizerFile` of a Unigram model.

    Raises:
        ValueError: If a part of the file is not supported; the message names the part.

    Example:
        >>> import os, tempfile
        >>> from tf_transformer.tokenizers import UnigramTokenizer
        >>> trained = UnigramTokenizer.train(["low lower lowest"] * 9, vocab_size=30)
        >>> path = os.path.join(tempfile.mkdtemp(), "tokenizer.json")
        >>> trained.save(path)
        >>> graph = GraphUnigram.from_file(path)
        >>> graph.encode(["lowest"]).to_list() == trained.encode(["lowest"])
        True
    """

    model_type = "Unigram"

    def _build_model(self, file):
        self._unknown = file.model.get("unk_id")
        if self._unknown not in range(len(file.model["vocab"])):
            raise UnsupportedPart.of("model.unk_id", "the id of a token", self._unknown)
        self._id_of_byte = None
        if file.model.get("byte_fallback"):
            self._id_of_byte = ids_of_bytes(file.vocabulary)
        tokens, scores = zip(*file.model["vocab"], strict=True)
        self._scores = np.array(scores, np.float64)
        if not self._scores.min() <= UNKNOWN_PENALTY:
            # Otherwise two unknown characters could score better than a token that covers both.
            raise UnsupportedPart.of(
                "model.vocab", "log-probabilities", f"scores from {min(scores)}"
            )
        self._unknown_score = self._scores.min() - UNKNOWN_PENALTY
        self._trie = Trie({token: i for i, token in enumerate(tokens) if token})

    def _cut_words(self, words):
        codes, owner, start, end = words_of_characters(words)
        last, lengths, ids, scores = self._matches(codes, tf.gather(end, owner))
        longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
        # Column j holds the token of `longest - j` characters that ends at the row's position.
        cells = tf.stack([last, longest - lengths], axis=1)
        shape = tf.stack([tf.size(owner), longest])
        no_token = tf.fill(shape, tf.constant(-np.inf, tf.float64))
        score_table = tf.tensor_scatter_nd_update(no_token, cells, scores)  # [C, L]
        length_at = _viterbi(start, end, score_table)  # [C], of the best token ending there
        is_token, _ = follow(end - 1, start - 1, -length_at)
        id_table = tf.scatter_nd(cells, ids, shape)
        ids = tf.gather(id_table, longest - length_at, batch_dims=1)
        if self._id_of_byte is not None:
            return self._with_bytes(codes, owner, ids, is_token)
        ids, owner = tf.boolean_mask(ids, is_token), tf.boolean_mask(owner, is_token)
        kept = first_of_unknown(ids == self._unknown, owner)
        return tf.boolean_mask(ids, kept), tf.boolean_mask(owner, kept)

    def _with_bytes(self, codes, owner, ids, is_token):
        """Replace unknown tokens with the bytes of their characters."""
        ends = tf.cast(tf.where(is_token)[:, 0], tf.int32)  # [M], last characters
        ids, words = tf.gather(ids, ends), tf.gather(owner, ends)
        begins_run = first_of_unknown(ids == self._unknown, words)
        run = tf.cumsum(tf.cast(begins_run, tf.int32)) - 1  # [M]
        lengths = ends - tf.concat([[-1], ends[:-1]], axis=0)[: tf.size(ends)]
        # A run that is exactly the name of the unknown token is that token.
        is_named = tf.math.segment_sum(tf.ones_like(run), run) == 1
        is_named &= tf.math.segment_max(lengths, run) > 1
        in_bytes = (ids == self._unknown) & ~tf.gather(is_named, run)
        token = tf.cumsum(tf.cast(is_token, tf.int32), exclusive=True)  # [C]
        char_in_bytes = tf.gather(in_bytes, token)
        letters = tf.strings.unicode_encode(codes[:, tf.newaxis], "UTF-8")
        counts = tf.where(char_in_bytes, tf.strings.length(letters), tf.cast(is_token, tf.int32))
        source = tf.repeat(tf.range(tf.size(codes)), counts)  # [ids written]
        written = tf.gather(ids, tf.gather(token, source))
        joined = tf.strings.reduce_join(tf.boolean_mask(letters, char_in_bytes))
        raw = tf.cast(tf.io.decode_raw(joined, tf.uint8), tf.int32)
        places = tf.where(tf.gather(char_in_bytes, source))
        ids = tf.tensor_scatter_nd_update(written, places, tf.gather(self._id_of_byte, raw))
        return ids, tf.gather(owner, source)

    def _matches(self, codes, end):
        """All tokens found in the words: last position, length, id and score, each `[M]`."""
        places, lengths, ids = self._trie.walk(codes, end, tf.zeros_like(codes))
        is_single = tf.scatter_nd(
            places[:, tf.newaxis], tf.cast(lengths == 1, tf.int32), tf.shape(codes)
        )
        unknown = tf.cast(tf.where(is_single == 0)[:, 0], tf.int32)
        ones = tf.ones_like(unknown)
        return (
            tf.concat([places + lengths - 1, unknown], axis=0),
            tf.concat([lengths, ones], axis=0),
            tf.concat([ids, self._unknown * ones], axis=0),
            tf.concat(
                [
                    tf.gather(self._scores, ids),
                    tf.fill(tf.shape(unknown), tf.constant(self._unknown_score, tf.float64)),
                ],
                axis=0,
            ),
        )


def _viterbi(start, end, score_table):
    """The best last token at every position of every word."""
    longest = tf.shape(score_table)[1]
    # The scores of the best paths to the previous L positions; a word begins with 0.
    before = tf.fill([tf.size(start), longest - 1], tf.constant(-np.inf, tf.float64))
    best = tf.concat([before, tf.zeros([tf.size(start), 1], tf.float64)], axis=1)  # [W, L]
    state = (start, end, best, tf.zeros(tf.shape(score_table)[:1], tf.int32))
    vector = tf.TensorShape([None])

    def step(places, end, best, length_at):
        candidates = best + tf.gather(score_table, places)  # [W, L]
        chosen = tf.argmax(candidates, axis=1, output_type=tf.int32)  # the first, i.e. longest
        length_at = tf.tensor_scatter_nd_update(length_at, places[:, tf.newaxis], longest - chosen)
        arrived = tf.reduce_max(candidates, axis=1, keepdims=True)
        best = tf.concat([best[:, 1:], arrived], axis=1)
        places += 1
        goes_on = places < end
        places, end, best = (tf.boolean_mask(part, goes_on) for part in (places, end, best))
        return places, end, best, length_at

    *_, length_at = tf.while_loop(
        lambda places, *_: tf.size(places) > 0,
        step,
        state,
        shape_invariants=(vector, vector, tf.TensorShape([None, None]), vector),
    )
    return length_at
