"""WordPiece with core TensorFlow ops.

W words, C code points of all those words, M matches of tokens in them.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.follow import follow
from tf_transformer.tokenizers.graph.graph_tokenizer import GraphTokenizer
from tf_transformer.tokenizers.graph.texts import words_of_characters
from tf_transformer.tokenizers.graph.trie import Trie
from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


class GraphWordPiece(GraphTokenizer):
    """Produces exactly the ids of `WordPieceTokenizer` inside a TensorFlow graph.

    Devlin et al. 2019, the authors' tokenization.py: from left to right, always the longest
    matching token; a word that cannot be split this way is unknown as a whole. The original
    searches position by position. Here the longest token at every position of every word is found
    first, in parallel, and the tokens are then followed from the beginning of each word.

    Args:
        file: a `TokenizerFile` of a WordPiece model.

    Raises:
        ValueError: If a part of the file is not supported; the message names the part.

    Example:
        >>> import os, tempfile
        >>> from tf_transformer.tokenizers import WordPieceTokenizer
        >>> trained = WordPieceTokenizer.train(["low lower lowest"], vocab_size=40)
        >>> path = os.path.join(tempfile.mkdtemp(), "tokenizer.json")
        >>> trained.save(path)
        >>> graph = GraphWordPiece.from_file(path)
        >>> graph.encode(["Lower!"]).to_list() == trained.encode(["Lower!"])
        True
    """

    model_type = "WordPiece"

    def _build_model(self, file):
        unknown = file.model["unk_token"]
        vocabulary = dict(file.model["vocab"])
        if unknown not in vocabulary:
            raise UnsupportedPart.of("model.unk_token", "a token of the vocabulary", unknown)
        self._unknown = vocabulary[unknown]
        self._longest_word = file.model["max_input_chars_per_word"]
        prefix = file.model["continuing_subword_prefix"]
        size = len(prefix)
        inside = {t[size:]: number for t, number in vocabulary.items() if t.startswith(prefix)}
        for tokens in (inside, vocabulary):
            tokens.pop("", None)
        self._trie = Trie(vocabulary, inside)

    def _is_whole(self, file, words):
        # The longest match at the start of a word that is a token: no need to run the model.
        vocabulary, longest = file.model["vocab"], self._longest_word
        return np.array([t in vocabulary and len(t) <= longest for t in file.vocabulary])

    def _cut_words(self, words):
        codes, owner, start, end = words_of_characters(words)
        num_codes = tf.size(codes)
        is_inside = tf.range(num_codes) != tf.gather(start, owner)
        places, lengths, ids = self._trie.walk(
            codes, tf.gather(end, owner), tf.cast(is_inside, tf.int32)
        )
        longest = tf.math.unsorted_segment_max(lengths, places, num_codes)
        is_longest = lengths == tf.gather(longest, places)
        places = tf.boolean_mask(places, is_longest)[:, tf.newaxis]
        length_at = tf.scatter_nd(places, tf.boolean_mask(lengths, is_longest), [num_codes])
        id_at = tf.scatter_nd(places, tf.boolean_mask(ids, is_longest), [num_codes])
        is_token, reaches_end = follow(start, end, length_at)
        fits = reaches_end & (end - start <= self._longest_word)  # [W]
        # An unknown word keeps only its first position.
        fits_here = tf.gather(fits, owner)
        ids = tf.where(fits_here, id_at, self._unknown)
        chosen = tf.where(fits_here, is_token, ~is_inside)
        return tf.boolean_mask(ids, chosen), tf.boolean_mask(owner, chosen)
