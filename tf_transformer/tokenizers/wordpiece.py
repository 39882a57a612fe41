"""WordPiece, and its training by the likelihood of pairs."""

import itertools
from collections import Counter, defaultdict

import numpy as np

from tf_transformer.tokenizers.pipeline import bert_pipeline, tokenizer_json
from tf_transformer.tokenizers.tokenizer import Tokenizer
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile
from tf_transformer.tokenizers.training import (
    check_learned,
    check_unknown,
    check_vocab_size,
    checked_texts,
    count_words,
    import_tokenizers,
    is_watched,
    train_content,
)


def learn_wordpieces(word_counts, num_tokens, prefix="##", min_frequency=2):
    """Repeatedly merge the pair of adjacent tokens with the greatest mutual information.

    Schuster and Nakajima 2012, section 3: add the unit that increases the likelihood of the corpus
    most. Under a unigram model, the gain of a pair (a, b) that occurs n_ab times among N symbols is

        n_ab * log(n_ab * N / (n_a * n_b)),

    N times the pair's term of the mutual information of adjacent symbols. (The logarithm without
    the factor n_ab, also in use, prefers rare pairs that always occur together.) The change of N
    by a merge is ignored. Ties are broken by frequency, then alphabetically.
    """
    corpus = _Corpus(word_counts, prefix)
    while len(corpus.tokens) < num_tokens:
        pair = corpus.best_pair(min_frequency)
        if pair is None:
            break
        corpus.merge(*pair)
    return corpus.tokens


class _Corpus:
    """Words as lists of token numbers, with up-to-date counts of tokens and pairs."""

    def __init__(self, word_counts, prefix):
        self._prefix = prefix
        self.tokens = []
        self._number = {}
        words = {w: [w[0], *(prefix + c for c in w[1:])] for w in word_counts if w}
        for token in sorted({token for word in words.values() for token in word}):
            self._add(token)
        self._words = [[self._number[token] for token in word] for word in words.values()]
        self._word_counts = [word_counts[word] for word in words]
        self._token_counts = Counter()
        self._slot = {}  # of each pair in the arrays below
        self._pairs, self._pair_counts = np.zeros((1024, 2), np.int64), np.zeros(1024)
        self._words_of = defaultdict(set)
        for index in range(len(self._words)):
            self._count(index, 1)

    def best_pair(self, min_frequency):
        """Return the two tokens to merge, or None."""
        size = len(self._slot)
        left, right = self._pairs[:size].T
        together = self._pair_counts[:size]
        counts = np.zeros(len(self.tokens))
        counts[list(self._token_counts)] = list(self._token_counts.values())
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = together * np.log(together * counts.sum() / (counts[left] * counts[right]))
        gain[together < min_frequency] = -np.inf
        if not size or np.isneginf(gain).all():
            return None
        equal = np.flatnonzero(gain == gain.max())
        equal = equal[together[equal] == together[equal].max()]
        return min(self._pairs[equal].tolist(), key=lambda pair: [self.tokens[i] for i in pair])

    def merge(self, left, right):
        """Merge a pair into one token everywhere."""
        merged = self._add(self.tokens[left] + self.tokens[right].removeprefix(self._prefix))
        for index in sorted(self._words_of.pop((left, right))):
            self._count(index, -1)
            word, place = self._words[index], 0
            while place < len(word) - 1:
                if word[place] == left and word[place + 1] == right:
                    word[place : place + 2] = [merged]
                place += 1
            self._count(index, 1)

    def _add(self, token):
        if token not in self._number:
            self._number[token] = len(self.tokens)
            self.tokens.append(token)
        return self._number[token]

    def _count(self, index, sign):
        word, count = self._words[index], sign * self._word_counts[index]
        for token in word:
            self._token_counts[token] += count
        for pair in itertools.pairwise(word):
            slot = self._slot.setdefault(pair, len(self._slot))
            if slot == len(self._pairs):
                self._pairs = np.concatenate([self._pairs, np.zeros_like(self._pairs)])
                self._pair_counts = np.append(self._pair_counts, np.zeros(slot))
            self._pairs[slot] = pair
            self._pair_counts[slot] += count
            if sign > 0:
                self._words_of[pair].add(index)


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
        """Learn a vocabulary by pair frequency, as BPE does.

        The Rust package, and thus BERT vocabularies trained with it, use this criterion. For the
        paper's criterion, mutual information, use `train_by_information`.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, one text per
                line).
            vocab_size: integer, the maximum number of ids; see `BPETokenizer.train`.
            pipeline: `Pipeline` with an unknown token, by default `bert_pipeline()`. With
                `metaspace_pipeline()`, which marks the beginnings of words rather than their
                insides, decoding restores the text, including spaces and case.
            min_frequency: integer, how often a pair must occur to be merged.

        Returns:
            A `WordPieceTokenizer`.

        Raises:
            ImportError: If the `tokenizers` package is not installed.
            TypeError: If `texts` is a single string or contains a non-string.
            ValueError: If `vocab_size` is smaller than the alphabet, `texts` contains no text, or
                the pipeline has no unknown token.
        """
        rust = import_tokenizers()
        pipeline = pipeline or bert_pipeline()
        model = _untrained(pipeline)
        special = pipeline.special_tokens
        check_vocab_size(vocab_size, len(special) + 1, "special tokens and an alphabet")
        texts = list(checked_texts(texts))
        # The trainer would number the characters inside words in hash-table order, so that ties
        # between pairs would be broken differently each time. Passing them as special tokens fixes
        # their numbers; `train_content` takes the actual special tokens from the pipeline.
        prefix = model["continuing_subword_prefix"]
        inside = {prefix + c for word in count_words(texts, pipeline) for c in word[1:] if prefix}
        trainer = rust.trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=[*special, *sorted(inside)],
            continuing_subword_prefix=prefix,
            show_progress=is_watched(),
        )
        return cls(TokenizerFile.of(train_content(texts, vocab_size, pipeline, model, trainer)))

    @classmethod
    def train_by_information(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Learn a vocabulary by the mutual information of adjacent tokens; see `learn_wordpieces`.

        Arguments, return value and errors are the same as in `train`. It is implemented in Python
        and takes seconds where `train` takes a fraction of a second.
        """
        import_tokenizers()
        pipeline = pipeline or bert_pipeline()
        model, special = _untrained(pipeline), pipeline.special_tokens
        check_vocab_size(vocab_size, len(special) + 1, "special tokens and an alphabet")
        tokens = learn_wordpieces(
            count_words(texts, pipeline),
            vocab_size - len(special),
            model["continuing_subword_prefix"],
            min_frequency,
        )
        vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*special, *tokens]))}
        check_vocab_size(vocab_size, len(vocabulary), "special tokens and the alphabet")
        check_learned(len(vocabulary), pipeline)
        special_ids = {token: vocabulary[token] for token in special}
        content = tokenizer_json(model | {"vocab": vocabulary}, pipeline, special_ids)
        return cls(TokenizerFile.of(content))

    @classmethod
    def load_vocabulary(cls, path, lowercase=True):
        """Read BERT's `vocab.txt`; see `TokenizerFile.read_vocabulary`.

        Args:
            path: string or path of the text file.
            lowercase: bool, whether the model is "uncased": the file does not specify it.

        Returns:
            A `WordPieceTokenizer`.

        Raises:
            ImportError: If the `tokenizers` package is not installed.
            FileNotFoundError: If the file does not exist.
            ValueError: If programs read the file differently or it lacks one of BERT's special
                tokens; see `TokenizerFile.read_vocabulary`.
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
            matches.append(
                {"token": found, "start": start, "end": end, "tried": tried[: tried.index(found)]}
            )
            start = end
        return {"word": word, "matches": matches, "tokens": [match["token"] for match in matches]}


def _untrained(pipeline):
    check_unknown(pipeline)
    return {
        "type": "WordPiece",
        "unk_token": pipeline.unknown,
        # Only BERT's decoder removes "##" again.
        "continuing_subword_prefix": pipeline.decoder.get("prefix", ""),
        "max_input_chars_per_word": 100,
        "vocab": {},
    }
