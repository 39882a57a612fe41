import itertools
import math
import random
from collections import Counter

import pytest

from tf_transformer.tokenizers import WordPieceTokenizer, metaspace_pipeline
from tf_transformer.tokenizers.training import learn_wordpieces


def by_definition(word_counts, num_tokens, prefix, min_frequency=2):
    """The same algorithm, recomputing all counts for every merge."""
    words = {w: [w[0], *(prefix + c for c in w[1:])] for w in word_counts}
    tokens = sorted({token for word in words.values() for token in word})
    while len(tokens) < num_tokens:
        single, together = Counter(), Counter()
        for word, symbols in words.items():
            for symbol in symbols:
                single[symbol] += word_counts[word]
            for pair in itertools.pairwise(symbols):
                together[pair] += word_counts[word]
        total = sum(single.values())
        gains = {
            (a, b): n * math.log(n * total / (single[a] * single[b]))
            for (a, b), n in together.items()
            if n >= min_frequency
        }
        if not gains:
            break
        a, b = min(gains, key=lambda pair: (-gains[pair], -together[pair], pair))
        merged = a + b.removeprefix(prefix)
        if merged not in tokens:
            tokens.append(merged)
        for word, symbols in words.items():
            joined = []
            for symbol in symbols:
                if joined and (joined[-1], symbol) == (a, b):
                    joined[-1] = merged
                else:
                    joined.append(symbol)
            words[word] = joined
    return tokens


@pytest.mark.parametrize("prefix", ["##", ""])
@pytest.mark.parametrize("seed", range(10))
def test_merges_are_those_of_the_definition(seed, prefix):
    draw = random.Random(seed)
    words = {"".join(draw.choices("abcd", k=draw.randint(1, 9))) for _ in range(40)}
    # Large counts, so that no two gains are equal.
    counts = {word: draw.randint(1, 10**6) for word in sorted(words)}
    expected = by_definition(counts, 60, prefix)
    assert learn_wordpieces(counts, 60, prefix) == expected
    assert len(expected) > 40


def test_runs_of_one_letter_are_merged_from_the_left():
    tokens = learn_wordpieces({"aaaaa": 5, "b": 1}, 6, prefix="")
    assert tokens == ["a", "b", "aa", "aaa", "aaaaa"]


def test_pairs_seen_once_are_not_merged():
    assert learn_wordpieces({"ab": 1}, 10) == ["##b", "a"]
    assert learn_wordpieces({"ab": 1}, 10, min_frequency=1) == ["##b", "a", "ab"]


def test_information_and_frequency_choose_different_pairs():
    # "qu" is rarer than "th", but q never occurs without u.
    counts = {"th": 60, "t": 300, "h": 300, "qu": 40, "e": 100}
    [first] = learn_wordpieces(counts, 7)[6:]
    assert first == "qu"
    texts = [word for word, count in counts.items() for _ in range(count)]
    by_frequency = WordPieceTokenizer.train(texts, 13)
    by_information = WordPieceTokenizer.train_by_information(texts, 12)
    assert by_frequency.tokens_to_ids(["th"]) and by_information.tokens_to_ids(["qu"])
    with pytest.raises(ValueError, match="qu"):
        by_frequency.tokens_to_ids(["qu"])


def test_a_trained_tokenizer_holds_what_was_learned(corpus_texts):
    texts = corpus_texts["en"][:3000]
    tokenizer = WordPieceTokenizer.train_by_information(texts, 900, metaspace_pipeline())
    assert tokenizer.vocab_size == 900
    assert tokenizer.decode(tokenizer.encode(texts)) == [" ".join(t.split()) for t in texts]
