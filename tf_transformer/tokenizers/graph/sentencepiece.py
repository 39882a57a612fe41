"""The models of SentencePiece in a graph. W words, here whole texts; C characters; L longest piece.

Pieces have numbers of their own while a text is cut, after which come the unknown piece and the 256
bytes; the ids are looked up at the end. So two pieces may have one id, that of the unknown piece,
and still count as two.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.added_tokens import Trie
from tf_transformer.tokenizers.graph.models import CharacterSymbols, GraphBPE, GraphUnigram
from tf_transformer.tokenizers.tokenizer_file import UNKNOWN_PENALTY

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


class _SentencePiece:
    """What both models share."""

    def _number(self, file, pieces):
        """Set the ids of the pieces, of the unknown piece and of the bytes."""
        model, self._unknown = file.model, len(pieces)
        ids, unknown = model["vocab"], model["vocab"][model["unk_token"]]
        pieces = [*pieces, model["unk_token"], *_BYTES]
        self._ids = np.array([ids.get(piece, unknown) for piece in pieces], np.int32)
        self._id_of_byte = None
        if model["byte_fallback"]:
            self._id_of_byte = np.arange(256, dtype=np.int32) + self._unknown + 1

    def _cut_words(self, words):
        numbers, owner, _ = super()._cut_words(words)
        return tf.gather(self._ids, numbers), owner, None

    def _is_whole(self, file, words):
        return np.zeros(len(words), bool)  # a text is seldom one piece


class GraphSentencePieceUnigram(_SentencePiece, GraphUnigram):
    """Produces exactly the ids of SentencePiece's Unigram models inside a TensorFlow graph.

    Unlike in `GraphUnigram`, a whole text is one word, and the scores of paths are rounded to
    float32 at every piece, which decides between paths that are equal otherwise. Control symbols
    are never matched in a text; user-defined symbols always are.

    Args:
        file: a `TokenizerFile` of `read_sentencepiece`; see `GraphTokenizer`.

    Raises:
        ValueError: If a part of the file is not supported.

    Example:
        >>> from sentencepiece import SentencePieceTrainer
        >>> texts, settings = iter(["low lower"] * 9), {"vocab_size": 11, "minloglevel": 2}
        >>> SentencePieceTrainer.train(sentence_iterator=texts, model_prefix="spiece", **settings)
        >>> graph = GraphSentencePieceUnigram.from_file("spiece.model")
        >>> graph.decode(graph.encode(["lower  low"])).numpy().tolist()
        [b'lower low']
    """

    model_type = "SentencePieceUnigram"

    def _build_model(self, file):
        pieces, scores = zip(*file.model["pieces"], strict=True)
        symbols = file.model["user_defined"]
        scores = np.array(scores, np.float32)
        of_symbols = [0.1 * (len(symbol.encode()) - 1) for symbol in symbols]
        self._scores = np.array([*scores, *of_symbols], np.float32).astype(np.float64)
        self._unknown_score = np.float64(scores.min() - np.float32(UNKNOWN_PENALTY))
        pieces = [*pieces, *symbols]
        self._number(file, pieces)
        self._trie = Trie({piece: number for number, piece in enumerate(pieces)})

    @staticmethod
    def _best(before, scores):
        """As in `GraphUnigram`, with each total rounded to float32."""
        totals = tf.cast(tf.cast(before + scores, tf.float32), tf.float64)
        return tf.argmax(totals, axis=1, output_type=tf.int32), tf.reduce_max(totals, axis=1)


class GraphSentencePieceBPE(_SentencePiece, GraphBPE):
    """Produces exactly the ids of SentencePiece's BPE models inside a TensorFlow graph.

    Sennrich et al. 2016, section 3.2. Any two neighbors whose union is a piece can be merged; the
    union with the best score comes first.

    Args:
        file: a `TokenizerFile` of `read_sentencepiece`; see `GraphTokenizer`.

    Raises:
        ValueError: If a part of the file is not supported.

    Example:
        >>> from sentencepiece import SentencePieceTrainer
        >>> texts, settings = iter(["low lower"] * 9), {"vocab_size": 13, "minloglevel": 2}
        >>> settings["model_type"] = "bpe"
        >>> SentencePieceTrainer.train(sentence_iterator=texts, model_prefix="spiece", **settings)
        >>> graph = GraphSentencePieceBPE.from_file("spiece.model")
        >>> graph.decode(graph.encode(["lower  low"])).numpy().tolist()
        [b'lower low']
    """

    model_type = "SentencePieceBPE"

    def _build_model(self, file):
        pieces = file.model["pieces"]
        self._number(file, pieces)
        numbers = {piece: number for number, piece in enumerate(pieces)}
        others = [file.model["unk_token"], *_BYTES]
        symbols = {piece: number for number, piece in enumerate([*pieces, *others])}
        settings = {"unk_token": file.model["unk_token"], "fuse_unk": True}
        settings["byte_fallback"] = file.model["byte_fallback"]
        self._sizes = None
        self._symbols = CharacterSymbols({"vocab": symbols, **settings})
        rows = [(numbers[a], numbers[b], numbers[a + b], r) for a, b, r in file.model["merges"]]
        rows = np.array(rows, np.int64).reshape(-1, 4)
        self._build_merges(rows[:, :3], rows[:, 3], len(self._ids))
