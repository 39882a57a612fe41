import itertools
import random

import numpy as np
import pytest

from tf_transformer.tokenizers import BPETokenizer, GraphBPE, TokenizerFile
from tf_transformer.tokenizers.graph.models import _merges_for_certain

pytestmark = pytest.mark.one_of(10, "texts")


@pytest.fixture(scope="module")
def graph(pair_of):
    return pair_of("bpe")[0]


def byte_pair_encoding(word, merges):
    """Sennrich et al. 2016: always merge the leftmost occurrence of the best-ranked pair."""
    symbols = list(word)
    while True:
        pairs = [(symbols[i], symbols[i + 1]) for i in range(len(symbols) - 1)]
        ranks = [merges.index(pair) for pair in pairs if pair in merges]
        if not ranks:
            return symbols
        place = pairs.index(merges[min(ranks)])
        symbols[place : place + 2] = ["".join(pairs[place])]


def file_of_merges(merges):
    tokens = sorted({token for pair in merges for token in (*pair, "".join(pair))} | set("abc"))
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}}
    return TokenizerFile.of({"model": model | {"merges": merges}})


def random_merges(draw):
    """Merges in any order, including orders that training never produces."""
    tokens, merges = list("abc"), []
    for _ in range(draw.randint(1, 12)):
        pair = draw.choice(tokens), draw.choice(tokens)
        if pair not in merges and len("".join(pair)) < 6:
            merges.append(pair)
            tokens.append("".join(pair))
    if draw.random() < 0.5:
        draw.shuffle(merges)
    return merges


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.one_of(10)
def test_every_short_word_under_random_merges(without_tracing, seed):
    draw = random.Random(seed)
    merges = random_merges(draw)
    file = file_of_merges(merges)
    words = [
        "".join(letters) for n in range(1, 7) for letters in itertools.product("abc", repeat=n)
    ]
    words += ["".join(draw.choices("abc", k=draw.randint(7, 40))) for _ in range(200)]
    words = draw.sample(words, 700)
    for word, ids in zip(words, GraphBPE(file).encode(words).to_list(), strict=True):
        assert [file.vocabulary[i] for i in ids] == byte_pair_encoding(word, merges), word


def certain_merges(file):
    return _merges_for_certain(file.merges, np.arange(len(file.merges)), len(file.vocabulary))


def test_most_merges_of_a_trained_list_are_certain(file_of):
    file = TokenizerFile.read(file_of("bpe"))
    certain = certain_merges(file)
    assert certain.mean() > 0.1
    assert not certain[file.merges[:, 0] == file.merges[:, 1]].any()


@pytest.mark.parametrize(
    ("merges", "expected"),
    [
        ([("a", "b"), ("b", "c"), ("ab", "c")], [True, False, True]),
        ([("b", "c"), ("a", "b"), ("a", "bc")], [True, False, True]),
        ([("a", "a"), ("b", "c")], [False, True]),
        ([("ab", "c"), ("a", "b")], [True, False]),  # the result of (a, b) merges before (a, b)
    ],
)
def test_merges_that_are_certain(merges, expected):
    file = file_of_merges(merges)
    assert certain_merges(file).tolist() == expected


@pytest.mark.one_of(6)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_order_of_merges_has_the_reference_ids(rewrite, corpus_texts, seed):
    # In a trained list no merge creates a better-ranked pair; in a shuffled list many do.
    path = rewrite(lambda content: random.Random(seed).shuffle(content["model"]["merges"]))
    texts = list(corpus_texts["zh"][:2000]) + list(corpus_texts["en"][-2000:])
    texts += ["aaaaaaa", "abababab", "哈哈哈哈哈哈", "mississippi" * 2]
    assert GraphBPE.from_file(path).encode(texts).to_list() == BPETokenizer.load(path).encode(texts)


def test_second_occurrence_waits_for_a_better_pair(rewrite):
    def keep_two_merges(content):
        vocab = dict(list(content["model"]["vocab"].items())[:259])
        content["model"] |= {"vocab": vocab | {"ab": 259, "aba": 260}}
        content["model"]["merges"] = [["ab", "a"], ["a", "b"]]

    path = rewrite(keep_two_merges)
    [ids] = GraphBPE.from_file(path).encode(["abab"]).to_list()
    assert [ids] == BPETokenizer.load(path).encode(["abab"])
    assert ids[0] == 260 and len(ids) == 2


def test_a_vocabulary_that_cannot_write_its_own_tokens():
    # Neither "x" nor "y" is in the vocabulary, so the last token disappears.
    model = {"type": "BPE", "vocab": {"a": 0, "xy": 1}, "merges": []}
    file = TokenizerFile.of({"model": model, "version": "1.0", "added_tokens": []})
    texts = ["xy", "axya", "a"]
    assert GraphBPE(file).encode(texts).to_list() == BPETokenizer(file).encode(texts)
    assert GraphBPE(file).encode(texts).to_list() == [[], [0, 0], [0]]


def test_no_merges_at_all(tmp_path):
    path = tmp_path / "bytes.json"
    tokenizer = BPETokenizer.train(["abc"], 259)
    tokenizer.save(path)
    assert GraphBPE.from_file(path).encode(["héllo", ""]).to_list() == tokenizer.encode(
        ["héllo", ""]
    )


@pytest.mark.one_of(10)
@pytest.mark.parametrize("text", ["我知道" * 3333, "x" * 10000, "hello " * 1666, "😀" * 10000])
def test_long_lines(graph, trained, text):
    assert graph.encode([text]).to_list() == trained.encode([text])
