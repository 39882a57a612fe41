import itertools
import random

import pytest
from reference_unigram import best_paths

from tf_transformer.tokenizers import GraphUnigram, TokenizerFile, UnigramTokenizer

pytestmark = pytest.mark.one_of(10, "texts")


def make(scores, unknown=0):
    vocabulary = [["?", 0.0], *([token, score] for token, score in scores.items())]
    model = {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary}
    return TokenizerFile.of({"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}})


def tokens_of(file, text):
    [ids] = GraphUnigram(file).encode([text]).to_list()
    assert [ids] == UnigramTokenizer(file).encode([text])
    return [file.vocabulary[i] for i in ids]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("seed", range(8))
def test_every_short_word_under_random_scores(without_tracing, seed):
    draw = random.Random(seed)
    parts = ["".join(p) for n in range(1, 5) for p in itertools.product("ab", repeat=n)]
    scores = {part: -draw.uniform(1, 10) for part in draw.sample(parts, 12)}
    file = make(scores)
    words = ["".join(p) for n in range(1, 8) for p in itertools.product("ab", repeat=n)]
    words += ["xa", "axxb", "x", "xyz", "abxab"]
    for word, ids in zip(words, GraphUnigram(file).encode(words).to_list(), strict=True):
        paths = best_paths(word, scores)
        tokens = [file.vocabulary[i] for i in ids]
        assert tokens in paths, (word, paths)
        assert [ids] == UnigramTokenizer(file).encode([word])


@pytest.mark.one_of(4)
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_of_equal_paths_the_reference_decides(scale):
    # Scores that are sums of powers of two, so that many paths are exactly equal.
    scores = {"a": -1.0, "b": -1.0, "ab": -2.0, "ba": -2.0, "aa": -2.0, "aba": -3.0, "bab": -3.0}
    file = make({token: scale * score for token, score in scores.items()})
    words = ["".join(p) for n in range(1, 9) for p in itertools.product("ab", repeat=n)]
    assert GraphUnigram(file).encode(words).to_list() == UnigramTokenizer(file).encode(words)


@pytest.mark.slow
def test_unknown_characters_beside_each_other_are_one_id():
    file = make({"a": -1.0, "ab": -2.0})
    assert tokens_of(file, "xaxya xx") == ["?", "a", "?", "a", "?"]
    assert tokens_of(file, "xx xx") == ["?", "?"]


def test_a_likely_long_token_beats_likelier_short_ones():
    assert tokens_of(make({"a": -1.0, "b": -1.0, "ab": -1.9}), "ab") == ["ab"]
    assert tokens_of(make({"a": -1.0, "b": -1.0, "ab": -2.1}), "ab") == ["a", "b"]


def test_the_unknown_token_spelled_in_a_text():
    assert tokens_of(make({"a": -1.0, "<": -3.0}), "a?a ?") == ["a", "?", "a", "?"]


def test_scores_that_are_no_log_probabilities_are_refused():
    file = make({"a": 11.0, "aa": 30.0})
    file.model["vocab"][0][1] = 12.0
    with pytest.raises(ValueError, match="log-probabilities"):
        GraphUnigram(file)
