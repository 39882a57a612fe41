"""Text pairs: half are consecutive, none is too long, and tokens keep their order."""

from itertools import chain, pairwise

import numpy as np
import pytest

from tf_transformer.data import sentence_pairs, text_blocks


def make_documents(documents=60, sentences=9, tokens=12, seed=0):
    """Return documents in which every token is unique, so that an id identifies its position."""
    rng = np.random.default_rng(seed)
    made, places, number = [], {}, 5
    for d in range(documents):
        made.append([])
        for s in range(rng.integers(1, sentences)):
            made[-1].append([])
            for _ in range(rng.integers(1, tokens)):
                made[-1][-1].append(number)
                places[number] = (d, s)
                number += 1
    return made, places


DOCUMENTS, PLACES = make_documents()


def pairs(seed=0, max_tokens=30, epochs=20, **options):
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        yield from sentence_pairs(DOCUMENTS, max_tokens, rng, **options)


@pytest.mark.parametrize("max_tokens", [2, 7, 30, 1000])
def test_what_follows_follows_and_what_does_not_is_from_another_document(max_tokens):
    for first, second, label in pairs(max_tokens=max_tokens):
        assert first and second and len(first) + len(second) <= max_tokens
        for text in (first, second):
            assert text == list(range(text[0], text[0] + len(text)))  # truncated only at the ends
            assert PLACES[text[0]][0] == PLACES[text[-1]][0]
        (document, last), (other, begin) = PLACES[first[-1]], PLACES[second[0]]
        if label:
            assert document != other
        else:
            assert document == other and last < begin
            if max_tokens == 1000:  # nothing was truncated
                assert second[0] == first[-1] + 1


def test_half_of_the_pairs_are_true():
    labels = [label for _, _, label in pairs(epochs=60)]
    assert abs(np.mean(labels) - 0.5) < 5 * 0.5 / np.sqrt(len(labels))


def test_the_length_does_not_tell_the_label():
    lengths = ([], [])
    for _, second, label in pairs(max_tokens=1000, epochs=60):
        lengths[label].append(len(second))
    means, spreads = ([f(part) for part in lengths] for f in (np.mean, np.std))
    assert abs(means[0] - means[1]) < 0.15 * max(spreads)


def test_one_pair_of_ten_has_a_smaller_limit():
    long, rng = [[[1] * 5] * 40] * 2, np.random.default_rng(1)

    def share_below_41(**options):
        made = [next(sentence_pairs(long, 50, rng, **options)) for _ in range(1000)]
        return np.mean([len(first) + len(second) < 41 for first, second, _ in made])

    assert share_below_41(short_probability=0.0) == 0
    share = 39 / 49  # 39 of the 49 limits from 2 to 50 are below 41
    assert abs(share_below_41(short_probability=1.0) - share) < 0.06
    assert abs(share_below_41() - 0.1 * share) < 0.04


def test_pairs_follow_from_the_seed():
    assert list(pairs(1, epochs=1)) == list(pairs(1, epochs=1)) != list(pairs(2, epochs=1))
    rng = np.random.default_rng(1)
    first, second = (list(sentence_pairs(DOCUMENTS, 30, rng)) for _ in range(2))
    assert first != second


def test_single_sentences_have_no_pair_of_their_own():
    documents = [[[1], [2]], [[3]], [[4]]]
    rng = np.random.default_rng(0)
    made = [p for _ in range(200) for p in sentence_pairs(documents, 9, rng)]
    assert {first[0] for first, _, _ in made} == {1}
    assert {(second[0], label) for _, second, label in made} == {(2, 0), (3, 1), (4, 1)}


@pytest.mark.parametrize("max_tokens", [1, 7, 30])
def test_blocks_hold_every_token_once_and_whole_sentences_of_one_document(max_tokens):
    blocks = list(text_blocks(DOCUMENTS, max_tokens))
    assert list(chain(*blocks)) == sorted(PLACES)
    assert all(0 < len(block) <= max_tokens for block in blocks)
    for block in blocks:
        assert len({PLACES[token][0] for token in block}) == 1
    if max_tokens == 30:  # longer than any sentence
        begins = {document[i][0] for document in DOCUMENTS for i in range(len(document))}
        assert {block[0] for block in blocks} <= begins
        for left, right in pairwise(blocks):
            document, sentence = PLACES[right[0]]
            same = PLACES[left[0]][0] == document
            assert not same or len(left) + len(DOCUMENTS[document][sentence]) > max_tokens


def test_bad_input():
    rng = np.random.default_rng(0)
    for documents, got in (
        ([], "0 documents of at most 0"),
        ([[[1], [2]]], "1 documents"),
    ):
        with pytest.raises(ValueError, match=f"documents: expected at least two, .* got {got}"):
            next(sentence_pairs(documents, 9, rng))
    with pytest.raises(ValueError, match="2 documents of at most 1 sentences. Single sentences"):
        next(sentence_pairs([[[1]], [[2]]], 9, rng))
    with pytest.raises(ValueError, match="max_tokens: expected at least 2, .* got 1"):
        next(sentence_pairs(DOCUMENTS, 1, rng))
    with pytest.raises(ValueError, match="max_tokens: expected at least 1, got 0"):
        next(text_blocks(DOCUMENTS, 0))
