import itertools
import random

import pytest

from tf_transformer.tokenizers import GraphWordPiece, TokenizerFile, WordPieceTokenizer

pytestmark = pytest.mark.one_of(10, "texts")


def longest_match_first(word, vocabulary, prefix, unknown, longest=100):
    """Devlin et al. 2019, tokenization.py, WordpieceTokenizer, literally."""
    tokens, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            token = (prefix if start else "") + word[start:end]
            if token in vocabulary:
                break
        else:
            return [unknown]
        tokens.append(token)
        start = end
    return tokens if len(word) <= longest else [unknown]


def make(tokens, prefix="##", longest=100):
    return TokenizerFile.of(
        {
            "model": {
                "type": "WordPiece",
                "unk_token": "?",
                "continuing_subword_prefix": prefix,
                "max_input_chars_per_word": longest,
                "vocab": {token: i for i, token in enumerate(["?", *tokens])},
            },
            "pre_tokenizer": {"type": "WhitespaceSplit"},
        }
    )


def tokens_of(file, text):
    [ids] = GraphWordPiece(file).encode([text]).to_list()
    tokenizer = WordPieceTokenizer(file)
    assert [ids] == tokenizer.encode([text])
    assert ids == [number for word in tokenizer.trace(text) for number in word["ids"]]
    return [file.vocabulary[i] for i in ids]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("prefix", ["##", ""])
@pytest.mark.one_of(10)
def test_every_short_word_under_random_vocabularies(without_tracing, seed, prefix):
    draw = random.Random(seed)
    parts = ["".join(p) for n in range(1, 5) for p in itertools.product("ab#", repeat=n)]
    tokens = draw.sample(parts, 15) + [prefix + part for part in draw.sample(parts, 15)]
    file = make(dict.fromkeys(tokens), prefix)
    words = ["".join(p) for n in range(1, 7) for p in itertools.product("ab#", repeat=n)]
    for word, ids in zip(words, GraphWordPiece(file).encode(words).to_list(), strict=True):
        expected = longest_match_first(word, file.model["vocab"], prefix, "?")
        assert [file.vocabulary[i] for i in ids] == expected, word


def test_the_longest_token_is_taken_even_where_a_shorter_one_would_fit():
    # "ab" + "##cd" would cover the word, but "abc" is taken first and leaves "d" without a token.
    assert tokens_of(make(["a", "ab", "abc", "##cd", "##c"]), "abcd") == ["?"]
    assert tokens_of(make(["a", "ab", "abc", "##d", "##cd"]), "abcd") == ["abc", "##d"]


def test_an_unknown_part_makes_the_word_unknown_and_no_other():
    assert tokens_of(make(["a", "##b"]), "ab axb ab") == ["a", "##b", "?", "a", "##b"]


def test_a_word_longer_than_the_limit_is_unknown():
    file = make(["a", "##a"], longest=5)
    assert tokens_of(file, "aaaaa aaaaaa") == ["a", *["##a"] * 4, "?"]
    # Even if the word itself is a token.
    assert tokens_of(make(["aaaaaa"], longest=5), "aaaaaa") == ["?"]


def test_the_prefix_in_a_text_is_text():
    file = make(["#", "##a", "a"])
    assert tokens_of(file, "##a a #a") == ["##a", "a", "#", "##a"]
