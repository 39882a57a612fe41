"""The three models in Python, trained and run with the Rust package `tokenizers`."""

import heapq
import itertools

from tf_transformer.errors import check_choice
from tf_transformer.tokenizers.pipeline import (
    bert_pipeline,
    byte_alphabet,
    byte_level_pipeline,
    metaspace_pipeline,
    tokenizer_json,
    wordpiece_model,
)
from tf_transformer.tokenizers.tokenizer import Tokenizer
from tf_transformer.tokenizers.tokenizer_file import UNKNOWN_PENALTY, TokenizerFile
from tf_transformer.tokenizers.training import (
    check_learned,
    check_vocab_size,
    checked_texts,
    count_words,
    learn_wordpieces,
    train_content,
)


class BPETokenizer(Tokenizer):
    """Byte pair encoding: repeatedly merges the most frequent pair of adjacent symbols.

    Sennrich et al. 2016, section 3.2; by default over UTF-8 bytes rather than characters (Radford
    et al. 2019, section 2.2), so that no text has unknown symbols. The vocabulary is joint, as in
    "Attention Is All You Need", section 5.1, so source and target can share one embedding. The
    paper starts from tokenized text; here `pipeline` splits the text into words.

    Args:
        file: a `TokenizerFile` of a BPE model.

    Example:
        >>> tokenizer = BPETokenizer.train(["low lower lowest", "new newer newest"], vocab_size=300)
        >>> tokenizer.decode(tokenizer.encode(["lower <pad>"]))
        ['lower <pad>']
    """

    model_type = "BPE"

    @classmethod
    def train(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Train a `BPETokenizer`.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, one text per
                line): the sentences of both languages together.
            vocab_size: integer, the maximum number of ids. With a small corpus the vocabulary may
                be smaller because the pairs run out; see the `vocab_size` property.
            pipeline: `Pipeline`, by default `byte_level_pipeline()`.
            min_frequency: integer, how often a pair must occur to be merged.

        Raises:
            ImportError: If the `tokenizers` package is not installed.
            TypeError: If `texts` is a single string or contains a non-string.
            ValueError: If `vocab_size` is smaller than the alphabet, or `texts` contains no text.
        """
        pipeline = pipeline or byte_level_pipeline()
        alphabet = byte_alphabet() if pipeline.unknown is None else []
        check_vocab_size(vocab_size, pipeline, alphabet)
        model = {"type": "BPE", "unk_token": pipeline.unknown, "vocab": {}, "merges": []}
        settings = {"min_frequency": min_frequency, "initial_alphabet": alphabet}
        content = train_content(texts, vocab_size, pipeline, model, "BpeTrainer", **settings)
        return cls(TokenizerFile.of(content))

    def _trace_word(self, word, model):
        """Add `merges`: the pair of each merge, its rank and the symbols after it."""
        if model.get("ignore_merges") and word in model["vocab"]:
            return {"word": word, "merges": [], "tokens": [word]}
        cut = len(model.get("continuing_subword_prefix") or "")
        ranks = {pair: rank for rank, pair in enumerate(self._file.merge_pairs)}
        symbols, merges = _symbols(word, model), []
        while len(symbols) > 1:
            pairs = list(itertools.pairwise(symbols))
            place = min(range(len(pairs)), key=lambda i: ranks.get(pairs[i], len(ranks)))
            left, right = pair = pairs[place]
            if pair not in ranks:
                break
            symbols[place : place + 2] = [left + right[cut:]]
            merges.append({"pair": pair, "rank": ranks[pair], "symbols": list(symbols)})
        return {"word": word, "merges": merges, "tokens": symbols}


def _symbols(word, model):
    """Return the symbols of a word before the first merge, with unknown characters replaced."""
    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    symbols, is_after_unknown = [], False
    for place, character in enumerate(word):
        is_last = place == len(word) - 1
        symbol = prefix * (place > 0) + character + suffix * is_last
        in_bytes = _byte_tokens(symbol)
        is_known = symbol in model["vocab"]
        if is_known:
            symbols.append(symbol)
        elif model.get("byte_fallback") and all(byte in model["vocab"] for byte in in_bytes):
            symbols += in_bytes
        elif model.get("unk_token") and not (model.get("fuse_unk") and is_after_unknown):
            symbols.append(model["unk_token"])
        is_after_unknown = not is_known
    return symbols


def _byte_tokens(text):
    return [f"<0x{byte:02X}>" for byte in text.encode("utf-8")]


class WordPieceTokenizer(Tokenizer):
    """Splits each word from left to right, always taking the longest matching token.

    Schuster and Nakajima 2012; Devlin et al. 2019, the authors' tokenization.py. A word that
    cannot be split this way becomes one unknown token.

    Args:
        file: a `TokenizerFile` of a WordPiece model.

    Example:
        >>> tokenizer = WordPieceTokenizer.train(["low lower lowest"] * 2, vocab_size=22)
        >>> tokenizer.ids_to_tokens(tokenizer.encode(["LOWEST!"])[0])
        ['lowe', '##st', '[UNK]']
    """

    model_type = "WordPiece"

    @classmethod
    def train(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Train a `WordPieceTokenizer` by pair frequency, as BPE does.

        The Rust package, and thus BERT vocabularies trained with it, use this criterion. For the
        paper's criterion, mutual information, use `train_by_information`.

        Args:
            texts, vocab_size, min_frequency: see `BPETokenizer.train`.
            pipeline: `Pipeline` with an unknown token, by default `bert_pipeline()`. With
                `metaspace_pipeline()`, which marks the beginnings of words rather than their
                insides, decoding restores the text, including spaces and case.

        Raises:
            ImportError, TypeError, ValueError: See `BPETokenizer.train`; a ValueError also if the
                pipeline has no unknown token.
        """
        pipeline = pipeline or bert_pipeline()
        model = _untrained_wordpiece(vocab_size, pipeline)
        texts = list(checked_texts(texts))
        # The trainer would number the characters inside words in hash-table order, and so break
        # ties between pairs differently each time. As special tokens they have fixed numbers;
        # `train_content` takes the actual special tokens from the pipeline.
        prefix = model["continuing_subword_prefix"]
        inside = {prefix + c for word in count_words(texts, pipeline) for c in word[1:] if prefix}
        settings = {"min_frequency": min_frequency, "continuing_subword_prefix": prefix}
        settings["special_tokens"] = [*pipeline.special_tokens, *sorted(inside)]
        content = train_content(texts, vocab_size, pipeline, model, "WordPieceTrainer", **settings)
        return cls(TokenizerFile.of(content))

    @classmethod
    def train_by_information(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Train a `WordPieceTokenizer` by the mutual information of adjacent tokens.

        Schuster and Nakajima 2012, section 3: repeatedly add the unit that increases the likelihood
        of the corpus most. Under a unigram model, the gain of a pair (a, b) that occurs n_ab times
        among N symbols is

            n_ab * log(n_ab * N / (n_a * n_b)),

        N times the pair's term of the mutual information of adjacent symbols. (The logarithm
        without the factor n_ab, also in use, prefers rare pairs that always occur together.) The
        change of N by a merge is ignored. Ties are broken by frequency, then alphabetically.

        Arguments and errors are those of `train`, which is much faster than this Python code.
        """
        pipeline = pipeline or bert_pipeline()
        model = _untrained_wordpiece(vocab_size, pipeline)
        special, prefix = pipeline.special_tokens, model["continuing_subword_prefix"]
        num_tokens = vocab_size - len(special)
        counts = count_words(texts, pipeline)
        tokens = [*special, *learn_wordpieces(counts, num_tokens, prefix, min_frequency)]
        vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
        check_learned(vocab_size, len(vocabulary), pipeline)
        special_ids = {token: vocabulary[token] for token in special}
        content = tokenizer_json(model | {"vocab": vocabulary}, pipeline, special_ids)
        return cls(TokenizerFile.of(content))

    @classmethod
    def load_vocabulary(cls, path, lowercase=True):
        """Read a `WordPieceTokenizer` from BERT's `vocab.txt`; see `TokenizerFile.read_vocabulary`.

        Args:
            path: string or path of the text file.
            lowercase: bool, whether the model is "uncased": the file does not specify it.
        """
        return cls(TokenizerFile.read_vocabulary(path, bert_pipeline(lowercase)))

    def _trace_word(self, word, model):
        """Add `matches`: for each token, its position and the longer candidates tried first."""
        vocabulary = model["vocab"]
        unknown = {"word": word, "matches": [], "tokens": [model["unk_token"]]}
        if len(word) > model["max_input_chars_per_word"]:
            return unknown
        matches, start = [], 0
        while start < len(word):
            prefix = model["continuing_subword_prefix"] if start else ""
            tried = [prefix + word[start:end] for end in range(len(word), start, -1)]
            found = next((token for token in tried if token in vocabulary), None)
            if found is None:
                return unknown | {"matches": matches, "no_token_at": start}
            end = start + len(found) - len(prefix)
            longer = tried[: tried.index(found)]
            matches.append({"token": found, "start": start, "end": end, "tried": longer})
            start = end
        return {"word": word, "matches": matches, "tokens": [match["token"] for match in matches]}


def _untrained_wordpiece(vocab_size, pipeline):
    check_vocab_size(vocab_size, pipeline)
    # Only BERT's decoder removes "##" again.
    return wordpiece_model(pipeline.unknown, pipeline.decoder.get("prefix", ""), {})


# The step between the scores that the trainer gives to characters it would have dropped.
_SCORE_STEP = 0.0001

_PATHS_TO_SHOW = 3


class UnigramTokenizer(Tokenizer):
    """Splits each word into the tokens with the greatest product of probabilities.

    Kudo 2018, section 3.2. Training starts with all frequent substrings and repeatedly drops the
    tokens whose removal reduces the likelihood of the corpus least.

    Args:
        file: a `TokenizerFile` of a Unigram model.

    Example:
        >>> tokenizer = UnigramTokenizer.train(["low lower lowest"] * 9, vocab_size=30)
        >>> tokenizer.decode(tokenizer.encode(["lower  lowest"]))
        ['lower lowest']
    """

    model_type = "Unigram"

    @classmethod
    def train(cls, texts, vocab_size, pipeline=None):
        """Train a `UnigramTokenizer`, with a score for each token.

        Args:
            texts, vocab_size: see `BPETokenizer.train`.
            pipeline: `Pipeline` with an unknown token, by default `metaspace_pipeline()`.

        Raises:
            ImportError, TypeError, ValueError: See `WordPieceTokenizer.train`.
        """
        pipeline = pipeline or metaspace_pipeline()
        check_vocab_size(vocab_size, pipeline)
        # The trainer needs a model it can parse, and a Unigram model needs at least one entry.
        model = {"type": "Unigram", "unk_id": 0, "vocab": [[pipeline.unknown, 0.0]]}
        settings = {"unk_token": pipeline.unknown}
        content = train_content(texts, vocab_size, pipeline, model, "UnigramTrainer", **settings)
        vocabulary, num_special = content["model"]["vocab"], len(pipeline.special_tokens)
        vocabulary[num_special:] = _settled(vocabulary[num_special:])
        return cls(TokenizerFile.of(content))

    def _trace_word(self, word, model):
        """Add `paths`: the best segmentations with their scores, best first."""
        scores = dict(model["vocab"])
        unknown_score = min(scores.values()) - UNKNOWN_PENALTY
        longest = max(map(len, scores))
        best = [[(0.0, ())]]  # the best paths to each position
        for end in range(1, len(word) + 1):
            paths = []
            for start in range(max(0, end - longest), end):
                token = word[start:end]
                score = scores.get(token, unknown_score if end - start == 1 else None)
                if score is not None:
                    paths += [(total + score, (*path, token)) for total, path in best[start]]
            best.append(heapq.nlargest(_PATHS_TO_SHOW, paths, key=lambda path: path[0]))
        paths = [{"score": score, "tokens": list(path)} for score, path in best[-1]]
        tokens = _with_unknown(paths[0]["tokens"], scores, model)
        return {"word": word, "paths": paths, "tokens": tokens}


def _with_unknown(path, scores, model):
    """Return a path's tokens, with unknown characters replaced by tokens of the vocabulary."""
    unknown, _ = model["vocab"][model["unk_id"]]
    tokens = []
    for is_unknown, run in itertools.groupby(path, lambda t: t == unknown or t not in scores):
        run = list(run)
        text = "".join(run)
        in_bytes = _byte_tokens(text)
        if not is_unknown:
            tokens += run
        elif text != unknown and model.get("byte_fallback") and scores.keys() >= set(in_bytes):
            tokens += in_bytes
        else:
            tokens.append(unknown)
    return tokens


def _settled(vocabulary):
    """Make the vocabulary the same for every training on the same texts."""
    # The trainer sums in random order, which affects the last digits of a score, and gives the
    # characters it would have dropped scores in steps of 0.0001 above the lowest one, also in
    # random order. Here scores are rounded to six digits (so that every reader parses the same
    # float64), these characters get the lowest score, and ties are sorted alphabetically.
    least = min(score for _, score in vocabulary)
    settled = []
    for token, score in vocabulary:
        steps = (score - least) / _SCORE_STEP
        if len(token) == 1 and abs(steps - round(steps)) < 1e-6 and steps < len(vocabulary):
            score = least
        settled.append([token, float(f"{score:.6g}")])
    return sorted(settled, key=lambda entry: (-entry[1], entry[0]))


_TRAIN = {
    "bpe": BPETokenizer.train,
    # BERT's own pipeline would lose the case and spaces of a translation.
    "wordpiece": lambda texts, size: WordPieceTokenizer.train(texts, size, metaspace_pipeline()),
    "unigram": UnigramTokenizer.train,
}
SUBWORDS = tuple(_TRAIN)


def train_subwords(kind, texts, vocab_size):
    """Train a vocabulary with which decoding restores the text.

    Args:
        kind: str, one of `SUBWORDS`.
        texts: iterable of strings.
        vocab_size: int, the number of ids.

    Returns:
        `Tokenizer`.

    Raises:
        ValueError: If the kind is unknown; see also `BPETokenizer.train`.

    Example:
        >>> train_subwords("bpe", ["low lower lowest"], 270).encode(["low"])[0] != []
        True
    """
    check_choice("subword", kind, SUBWORDS)
    return _TRAIN[kind](texts, vocab_size)
