"""WordPiece training by mutual information, which the Rust package does not offer."""

import itertools
from collections import Counter, defaultdict

import numpy as np


def learn_wordpieces(word_counts, num_tokens, prefix="##", min_frequency=2):
    """Repeatedly merges the pair of adjacent tokens with the greatest mutual information.

    Schuster and Nakajima 2012, section 3: add the unit that increases the likelihood of the corpus
    most. With a unigram model of the symbols, the gain of the pair (a, b) that occurs n_ab times
    among N symbols is

        n_ab * log(n_ab * N / (n_a * n_b)),

    the pair's term of the mutual information of adjacent symbols, times N. (The logarithm without
    the factor n_ab, which is also in use, prefers pairs that are rare but always occur together.)
    The change of N by a merge is ignored. Ties are broken by frequency, then alphabetically.
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
        """The two tokens to merge, or None."""
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
