"""The models in a graph: words to characters or bytes, and to tokens."""

import functools

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.graph_tokenizer import GraphTokenizer
from tf_transformer.tokenizers.graph.texts import (
    BYTE_OF_LETTER,
    NUM_CODES,
    CharacterTable,
    Trie,
    bytes_of_letters,
    bytes_of_words,
    changes,
    follow,
    lookup_table,
    marked,
    numbers_of,
    previous,
    rows_of,
    selected,
    until_empty,
    words_of_characters,
)
from tf_transformer.tokenizers.tokenizer_file import UNKNOWN_PENALTY, UnsupportedPart

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def first_of_unknown(is_unknown, owner):
    """Drop all but the first of adjacent unknown symbols in a word."""
    return ~(is_unknown & previous(is_unknown)) | changes(owner)


def _id_of_unknown(vocabulary, unknown):
    if unknown not in vocabulary:
        raise UnsupportedPart.of("model.unk_token", "a token of the vocabulary", unknown)
    return vocabulary[unknown]


def ids_of_bytes(vocabulary):
    """The ids of the tokens `<0x00>` to `<0xFF>`, or None if there are no such tokens."""
    missing = [token for token in _BYTES if token not in vocabulary]
    if missing == _BYTES:
        return None
    if missing:
        got = f"no {missing[:5]}"
        raise UnsupportedPart.of("model.byte_fallback", "a token for each byte", got)
    return np.array([vocabulary[token] for token in _BYTES], np.int32)


def with_bytes(codes, owner, ids, is_token, is_unknown, id_of_byte):
    """The ids of the characters that are tokens, and of the bytes of unknown ones, with words."""
    values, source = bytes_of_words(tf.strings.unicode_encode(codes[:, tf.newaxis], "UTF-8"))
    in_bytes = tf.gather(is_unknown, source)  # [bytes]
    # Any other token stays at the first byte of its character.
    kept = in_bytes | changes(source) & tf.gather(is_token, source)
    ids = tf.where(in_bytes, tf.gather(id_of_byte, values), tf.gather(ids, source))
    return selected(kept, ids, tf.gather(owner, source))


class ByteSymbols:
    """Turns words into the ids of their bytes."""

    def __init__(self, model):
        for part in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(part):
                raise UnsupportedPart.of(f"model.{part}", "none with ByteLevel", model[part])
        ids = [model["vocab"].get(letter) for letter in BYTE_OF_LETTER]
        missing = [byte for byte, number in enumerate(ids) if number is None]
        if missing:
            raise UnsupportedPart.of("model.vocab", "all 256 bytes", f"none for {missing}")
        self._id_of_byte = np.array(ids, np.int32)

    def __call__(self, words):
        """string `[W]` -> int32 `[N]`, the id of each byte, and int32 `[N]`, its word."""
        values, owner = bytes_of_words(words)
        return tf.gather(self._id_of_byte, values), owner


class CharacterSymbols:
    """Turns words into the ids of their characters; unknown ones become bytes, an id or nothing."""

    def __init__(self, model):
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
        self._unknown = -1 if unknown is None else _id_of_unknown(vocabulary, unknown)
        self._fuses_unknown = model.get("fuse_unk", False)
        self._id_of_byte = ids_of_bytes(vocabulary) if model.get("byte_fallback") else None
        if self._id_of_byte is not None and (prefix or suffix):
            raise UnsupportedPart.of("model.byte_fallback", "no prefix or suffix", True)

    def __call__(self, words):
        """string `[W]` -> int32 `[N]`, the id of each symbol, and int32 `[N]`, its word."""
        codes, owner, start, end = words_of_characters(words)
        place = tf.range(tf.size(codes))
        is_first = place == tf.gather(start, owner)
        is_last = place + 1 == tf.gather(end, owner)
        kind = 2 * tf.cast(is_first, tf.int32) + tf.cast(is_last, tf.int32)
        symbols = tf.stack([table.look_up(codes) for table in self._id_of_character], axis=1)
        symbols = tf.gather(symbols, kind, batch_dims=1)  # [C], -1 where unknown
        is_unknown = symbols < 0
        return tf.cond(
            tf.reduce_any(is_unknown),
            lambda: self._replace(codes, owner, symbols, is_unknown),
            lambda: (symbols, owner),
        )

    def _replace(self, codes, owner, symbols, is_unknown):
        if self._id_of_byte is not None:
            one_each = tf.ones_like(is_unknown)
            return with_bytes(codes, owner, symbols, one_each, is_unknown, self._id_of_byte)
        if self._unknown < 0:
            kept = ~is_unknown  # the reference drops such characters
        elif self._fuses_unknown:
            kept = first_of_unknown(is_unknown, owner)
        else:
            kept = tf.ones_like(is_unknown)
        return selected(kept, tf.where(is_unknown, self._unknown, symbols), owner)


def _ids_of_characters(vocabulary, prefix, suffix):
    """int32 `[0x110000]`, the id of each character with prefix and suffix; -1 if there is none."""
    ids = np.full(NUM_CODES, -1, np.int32)
    for token, number in vocabulary.items():
        if token.startswith(prefix) and token.endswith(suffix):
            character = token[len(prefix) : len(token) - len(suffix)]
            if len(character) == 1:
                ids[ord(character)] = number
    return ids


class GraphWordPiece(GraphTokenizer):
    """Produces exactly the ids of `WordPieceTokenizer` inside a TensorFlow graph.

    Devlin et al. 2019, the authors' tokenization.py: from left to right, always the longest
    matching token; a word that cannot be split this way is unknown as a whole. Here the longest
    token at every position of every word is found first, in parallel.

    Args:
        file: a `TokenizerFile` of a WordPiece model; see `GraphTokenizer`.

    Example:
        >>> from tf_transformer.tokenizers import WordPieceTokenizer
        >>> WordPieceTokenizer.train(["low lower lowest"], vocab_size=40).save("tokenizer.json")
        >>> GraphWordPiece.from_file("tokenizer.json").encode(["Lower!"]).to_list()
        [[20, 7, 1]]
    """

    model_type = "WordPiece"

    def _build_model(self, file):
        vocabulary = dict(file.model["vocab"])
        self._unknown = _id_of_unknown(vocabulary, file.model["unk_token"])
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
        is_inside = tf.range(tf.size(codes)) != tf.gather(start, owner)
        root = tf.cast(is_inside, tf.int32)
        length_at, id_at = self._trie.longest(codes, tf.gather(end, owner), root)
        is_token, reaches_end = follow(start, end, length_at)
        # An unknown word keeps only its first position.
        fits_here = tf.gather(reaches_end & (end - start <= self._longest_word), owner)
        ids = tf.where(fits_here, id_at, self._unknown)
        place = tf.range(tf.size(codes))
        return selected(tf.where(fits_here, is_token, ~is_inside), ids, owner, place)


class GraphUnigram(GraphTokenizer):
    """Produces exactly the ids of `UnigramTokenizer` inside a TensorFlow graph.

    Kudo 2018, section 3.2: the segmentation of a word with the highest total log-probability,
    found with the Viterbi algorithm in float64, one position in all words at once. Of two equal
    paths to a position, the one with the longest last token wins; adjacent unknown characters
    become one id.

    Args:
        file: a `TokenizerFile` of a Unigram model; see `GraphTokenizer`.

    Example:
        >>> from tf_transformer.tokenizers import UnigramTokenizer
        >>> UnigramTokenizer.train(["low lower lowest"] * 9, vocab_size=30).save("tokenizer.json")
        >>> GraphUnigram.from_file("tokenizer.json").encode(["lowest"]).to_list()
        [[4, 10, 11]]
    """

    model_type = "Unigram"
    _score_type = tf.float64  # in which scores are added

    def _build_model(self, file):
        self._unknown = file.model.get("unk_id")
        if self._unknown not in range(len(file.model["vocab"])):
            raise UnsupportedPart.of("model.unk_id", "the id of a token", self._unknown)
        numbers = {token: number for number, token in enumerate(file.vocabulary)}
        self._id_of_byte = ids_of_bytes(numbers) if file.model.get("byte_fallback") else None
        tokens, scores = zip(*file.model["vocab"], strict=True)
        self._scores = np.array(scores, np.float64)
        if not self._scores.min() <= UNKNOWN_PENALTY:
            # Otherwise two unknown characters could score better than a token that covers both.
            raise UnsupportedPart.of("model.vocab", "log-probabilities", f"from {min(scores)}")
        self._unknown_score = self._scores.min() - UNKNOWN_PENALTY
        self._trie = Trie({token: i for i, token in enumerate(tokens) if token})

    def _cut_words(self, words):
        codes, owner, start, end = words_of_characters(words)
        roots = tf.zeros_like(codes)
        places, lengths, ids = self._trie.walk(codes, tf.gather(end, owner), roots)
        longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
        # Column j holds the token of `longest - j` characters that ends at the row's position; in
        # the last column, a character that is no token is unknown.
        cells = tf.stack([places + lengths - 1, longest - lengths], axis=1)
        shape = [tf.size(owner), longest]
        no_token = tf.fill([longest - 1], tf.constant(-np.inf, tf.float64))
        scores = tf.broadcast_to(tf.concat([no_token, [self._unknown_score]], axis=0), shape)
        scores = tf.tensor_scatter_nd_update(scores, cells, tf.gather(self._scores, ids))  # [C, L]
        length_at = _viterbi(start, end, scores, self._score_type)  # [C]
        is_token, _ = follow(end - 1, start - 1, -length_at)
        ids = tf.tensor_scatter_nd_update(tf.fill(shape, self._unknown), cells, ids)
        ids = tf.gather(ids, longest - length_at, batch_dims=1)
        if self._id_of_byte is not None:
            return *self._with_bytes(codes, owner, ids, is_token), None
        ids, owner, end = selected(is_token, ids, owner, tf.range(tf.size(codes)))
        start = previous(end + 1)
        return selected(first_of_unknown(ids == self._unknown, owner), ids, owner, start)

    def _with_bytes(self, codes, owner, ids, is_token):
        """Replace unknown tokens with the bytes of their characters."""
        ends = tf.cast(tf.where(is_token)[:, 0], tf.int32)  # [M], last characters
        ids, words = tf.gather(ids, ends), tf.gather(owner, ends)
        run = numbers_of(first_of_unknown(ids == self._unknown, words))  # [M]
        lengths = ends + 1 - previous(ends + 1)
        # A run that is exactly the name of the unknown token is that token.
        is_named = tf.math.segment_sum(tf.ones_like(run), run) == 1
        is_named &= tf.math.segment_max(lengths, run) > 1
        in_bytes = (ids == self._unknown) & ~tf.gather(is_named, run)
        token = tf.cumsum(tf.cast(is_token, tf.int32), exclusive=True)  # [C]
        ids, in_bytes = tf.gather(ids, token), tf.gather(in_bytes, token)
        return with_bytes(codes, owner, ids, is_token, in_bytes, self._id_of_byte)


def _viterbi(start, end, score_table, score_type):
    """The length of the last token of the best path to every position of every word."""
    longest = tf.shape(score_table)[1]
    # The scores of the best paths to the previous L positions; a word begins with 0.
    before = tf.fill([tf.size(start), longest - 1], tf.constant(-np.inf, tf.float64))
    best = tf.concat([before, tf.zeros([tf.size(start), 1], tf.float64)], axis=1)  # [W, L]

    def step(places, end, best, length_at):
        totals = tf.cast(best + tf.gather(score_table, places), score_type)  # of L paths
        length = longest - tf.argmax(totals, axis=1, output_type=tf.int32)
        length_at = tf.tensor_scatter_nd_update(length_at, places[:, tf.newaxis], length)
        totals = tf.cast(tf.reduce_max(totals, axis=1, keepdims=True), tf.float64)
        best = tf.concat([best[:, 1:], totals], axis=1)
        places += 1
        return *selected(places < end, places, end, best), length_at

    length_at = tf.zeros(tf.shape(score_table)[:1], tf.int32)
    *_, length_at = until_empty(step, start, end, best, length_at)
    return length_at


class GraphBPE(GraphTokenizer):
    """Produces exactly the ids of `BPETokenizer` inside a TensorFlow graph.

    Sennrich et al. 2016, section 3.2, repeatedly merge the best-ranked pair of a word. Here each
    step processes all words of the batch at once, and merges all pairs of a word that will be
    merged regardless of their neighbors.

    Args:
        file: a `TokenizerFile` of a byte-level or character-level BPE model; see `GraphTokenizer`.

    Example:
        >>> from tf_transformer.tokenizers import BPETokenizer
        >>> BPETokenizer.train(["low lower lowest"], vocab_size=300).save("tokenizer.json")
        >>> GraphBPE.from_file("tokenizer.json").encode(["lower", ""]).to_list()
        [[260, 71, 84], []]
    """

    model_type = "BPE"

    def _build_model(self, file):
        model = file.model
        if model.get("dropout"):
            raise UnsupportedPart.of("model.dropout", None, model["dropout"])
        is_byte_level = _ends_in_bytes(file.content.get("pre_tokenizer"))
        self._symbols = (ByteSymbols if is_byte_level else CharacterSymbols)(model)
        if is_byte_level:
            self._sizes = np.array([*map(len, self._words_of_tokens(file))], np.int32)
        self._build_merges(file.merges, np.arange(len(file.merges)), self.vocab_size)

    def _build_merges(self, merges, ranks, num_symbols):
        """Build the table of merges `[M, 3]` of ranks `[M]`; pairs of a rank have one result."""
        # One rank past the last means "no such pair"; it merges nothing, so its result is 0.
        self._num_symbols, self._no_merge = num_symbols, np.max(ranks, initial=-1) + 1
        self._result_of_rank = np.zeros(self._no_merge + 1, np.int32)
        self._result_of_rank[ranks] = merges[:, 2]
        self._is_certain = np.ones(self._no_merge + 1, bool)
        is_certain = _merges_for_certain(merges, ranks, num_symbols)
        self._is_certain[[*ranks[~is_certain], self._no_merge]] = False
        # A vocabulary of bytes alone has no merges; the key -1 matches no pair.
        pairs = np.append(merges[:, 0] * num_symbols + merges[:, 1], -1)
        ranks = np.append(ranks, self._no_merge).astype(np.int32)
        self._rank_of_pair = lookup_table(pairs, ranks, default=int(self._no_merge))

    def _words_of_tokens(self, file):
        if not isinstance(self._symbols, ByteSymbols):
            return super()._words_of_tokens(file)
        return [bytes_of_letters(token) or b"" for token in file.vocabulary]

    def _is_whole(self, file, words):
        is_whole = super()._is_whole(file, words)
        if file.model.get("ignore_merges"):
            is_whole |= [token in file.model["vocab"] for token in file.vocabulary]
        return is_whole

    def _cut_words(self, words):
        # One flat vector of symbols, which shrinks at every merge, instead of a padded matrix.
        symbols, owner = self._symbols(words)
        merge = functools.partial(self._merge, tf.size(words))
        _, symbols, owner = until_empty(merge, symbols, symbols, owner)
        return symbols, owner, None

    def _merge(self, num_words, _, symbols, owner):
        """Merges, in each word, the certain pairs, or if there are none its best-ranked pair."""
        # Of the best-ranked pair only the leftmost occurrence is merged: the merge may create a
        # pair of better rank than the second occurrence, which the reference then merges first.
        pairs = tf.cast(symbols[:-1], tf.int64) * self._num_symbols + tf.cast(symbols[1:], tf.int64)
        owner_of_pair = owner[:-1]
        is_inside = owner_of_pair == owner[1:]
        rank = tf.where(is_inside, self._rank_of_pair.lookup(pairs), self._no_merge)  # [N - 1]
        is_certain = tf.gather(self._is_certain, rank)
        # Certain pairs come before all others of their word.
        order = tf.where(is_certain, -1, rank)
        best = tf.math.unsorted_segment_min(order, owner_of_pair, num_words)  # [W]
        is_best = (rank < self._no_merge) & (order == tf.gather(best, owner_of_pair))
        place = tf.cast(tf.where(is_best)[:, 0], tf.int32)
        word = tf.gather(owner, place)
        place = tf.boolean_mask(place, changes(word) | tf.gather(is_certain, place))
        merged = tf.gather(self._result_of_rank, tf.gather(rank, place))
        symbols = tf.tensor_scatter_nd_update(symbols, place[:, tf.newaxis], merged)
        is_gone = marked(tf.zeros_like(symbols, tf.bool), place + 1)
        return merged, *selected(~is_gone, symbols, owner)


def _merges_for_certain(merges, ranks, num_symbols):
    """The merges whose pairs can be merged immediately, wherever they occur: bool `[M]`."""
    # Let the pair (a, b) of rank r merge into m. Another merge can break the pair only by taking a
    # from the left or b from the right. If all such merges rank after r, the pair is merged in any
    # case. If all merges of m also rank after r, merging early does not affect merges before r.
    left, right, merged = merges.T
    first_as_left, first_as_right = np.full((2, num_symbols), len(merges))
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


class _SentencePiece:
    """What both models of SentencePiece share: a word is a whole text."""

    # While a text is cut, pieces have numbers of their own, followed by the unknown piece and the
    # bytes: two pieces may have one id, that of the unknown piece, and still count as two.

    def _number(self, file, pieces):
        """Set the ids of the pieces, the unknown piece and the bytes; return their numbers."""
        model, self._unknown = file.model, len(pieces)
        ids, unknown = model["vocab"], model["vocab"][model["unk_token"]]
        pieces = [*pieces, model["unk_token"], *_BYTES]
        parts = [model.get("splits", {}).get(piece, [piece]) for piece in pieces]
        self._counts = np.array([*map(len, parts)])  # of the ids of each piece
        self._ids = np.array([ids.get(name, unknown) for row in parts for name in row], np.int32)
        self._id_of_byte = None
        if model["byte_fallback"]:
            self._id_of_byte = np.arange(256, dtype=np.int32) + self._unknown + 1
        return {piece: number for number, piece in enumerate(pieces)}

    def _cut_words(self, words):
        numbers, owner, _ = super()._cut_words(words)
        ids = tf.RaggedTensor.from_row_lengths(self._ids, self._counts, validate=False)
        ids = tf.gather(ids, numbers)
        return ids.values, tf.gather(owner, rows_of(ids.row_lengths())), None

    def _is_whole(self, file, words):
        return np.zeros(len(words), bool)  # a text is seldom one piece


class GraphSentencePieceUnigram(_SentencePiece, GraphUnigram):
    """Produces exactly the ids of SentencePiece's Unigram models inside a TensorFlow graph.

    Unlike in `GraphUnigram`, a whole text is one word, and the scores of paths are rounded to
    float32 at every piece, which decides between paths that are equal otherwise. Control symbols
    are never matched in a text; user-defined symbols always are.

    Args:
        file: a `TokenizerFile` of `read_sentencepiece`; see `GraphTokenizer`.

    Example:
        >>> from sentencepiece import SentencePieceTrainer
        >>> texts, settings = iter(["low lower"] * 9), {"vocab_size": 11, "minloglevel": 2}
        >>> SentencePieceTrainer.train(sentence_iterator=texts, model_prefix="spiece", **settings)
        >>> graph = GraphSentencePieceUnigram.from_file("spiece.model")
        >>> graph.decode(graph.encode(["lower  low"])).numpy().tolist()
        [b'lower low']
    """

    model_type = "SentencePieceUnigram"
    _score_type = tf.float32

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


class GraphSentencePieceBPE(_SentencePiece, GraphBPE):
    """Produces exactly the ids of SentencePiece's BPE models inside a TensorFlow graph.

    Sennrich et al. 2016, section 3.2. Any two neighbors whose union is a piece can be merged; the
    union with the best score comes first.

    Args:
        file: a `TokenizerFile` of `read_sentencepiece`; see `GraphTokenizer`.

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
        model = file.model
        numbers = self._number(file, model["pieces"])
        self._symbols = CharacterSymbols({**model, "vocab": numbers, "fuse_unk": True})
        rows = [(numbers[a], numbers[b], numbers[a + b], r) for a, b, r in model["merges"]]
        rows = np.array(rows, np.int64).reshape(-1, 4)
        self._build_merges(rows[:, :3], rows[:, 3], len(self._ids))
