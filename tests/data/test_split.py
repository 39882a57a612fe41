import random

import pytest

from tf_transformer.data import (
    Split,
    group_references,
    load_corpus,
    split_documents,
    split_pairs,
    split_with_validation,
)

pytestmark = pytest.mark.one_of(3, "core")


@pytest.fixture(scope="module", params=["en-zh", "en-fr"])
def corpus(request):
    return load_corpus(request.param)


def sides(pairs):
    """Return all sentences, normalized to ignore small differences."""
    return {side.strip().casefold() for pair in pairs for side in pair}


def parts(split):
    return split.train, split.validation, split.test


def test_no_sentence_is_in_two_sets(corpus):
    train, validation, test = map(sides, parts(split_pairs(corpus)))
    assert not train & test
    assert not train & validation
    assert not validation & test


def test_every_pair_is_in_one_set_and_in_order(corpus):
    split = split_pairs(corpus)
    assert sorted(pair for part in parts(split) for pair in part) == sorted(corpus)
    for part in parts(split):
        members = set(part)
        assert part == [pair for pair in corpus if pair in members]


def test_all_references_of_a_source_stay_together(corpus):
    everywhere = dict(zip(*group_references(corpus), strict=True))
    for part in parts(split_pairs(corpus)):
        for source, references in zip(*group_references(part), strict=True):
            assert references == everywhere[source]


def test_shares_are_as_asked(corpus):
    split = split_pairs(corpus)
    assert 0.03 < len(split.test) / len(corpus) < 0.05
    assert 0.015 < len(split.validation) / len(corpus) < 0.025
    assert len(split_pairs(corpus, test_share=0.5).test) == pytest.approx(len(corpus) / 2, rel=0.05)
    assert split_pairs(corpus, test_share=0, validation_share=0).train == corpus


def test_the_set_of_pairs_alone_decides(corpus):
    shuffled = random.Random(5).sample(corpus, len(corpus))
    turned = [(target, source) for source, target in corpus]
    expected = [set(part) for part in parts(split_pairs(corpus))]
    assert [set(part) for part in parts(split_pairs(shuffled))] == expected
    assert [
        {(source, target) for target, source in part} for part in parts(split_pairs(turned))
    ] == expected


def test_the_split_is_the_published_one():
    # Reported scores refer to this test set; a change makes them incomparable.
    split = split_pairs(load_corpus("en-zh"))
    assert [len(part) for part in parts(split)] == [27379, 555, 1221]
    assert {("I'm OK.", "我没事。"), ("I'm sick.", "我生病了。")} <= set(split.test)


@pytest.mark.parametrize(
    "first, second",
    [
        (("a", "x"), ("b", "x")),  # the same target
        (("a", "x"), ("x", "b")),  # one pair's target is the other's source
        (("Tom ran.", "x"), (" tom RAN. ", "y")),  # case and whitespace
        (("１２ａ！", "x"), ("12a!", "y")),  # full-width characters
        (("Straße", "x"), ("STRASSE", "y")),  # case folding, not lower()
        (("e\u0301te\u0301", "x"), ("été", "y")),  # composed and decomposed
    ],
)
def test_near_copies_are_one_group(first, second):
    for share in [number / 20 for number in range(20)]:
        split = split_pairs([first, second], test_share=share, validation_share=0)
        assert len(split.test) in (0, 2)


def test_long_chains_are_one_group():
    chain = [(f"s{n // 2}", f"t{(n + 1) // 2}") for n in range(5000)]
    random.Random(3).shuffle(chain)
    assert sorted(map(len, parts(split_pairs(chain, 0.3, 0.3)))) == [0, 0, 5000]


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.1, -0.1), (0.5, 0.5)])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match="test_share, validation_share"):
        split_pairs([("a", "b")], *shares)


def test_no_pairs_give_empty_sets():
    assert split_pairs([]) == Split(train=[], validation=[], test=[])


def test_references_are_distinct_and_in_order():
    pairs = [("b", "2"), ("a", "1"), ("b", "1"), ("b", "2")]
    assert group_references(pairs) == (["b", "a"], [["2", "1"], ["1"]])


def test_split_documents_keeps_documents_whole_and_equal_ones_together():
    documents = [[f"Say {n % 50}.", "Again."] for n in range(100)]
    documents += [[f"SAY  {n}. again."] for n in range(50)]
    train, validation = split_documents(documents, 0.2)
    assert sorted(train + validation) == sorted(documents)
    texts = [{" ".join(d).casefold().replace("  ", " ") for d in s} for s in (train, validation)]
    assert not texts[0] & texts[1]
    assert split_documents(documents[:70], 0.2)[1] == [d for d in documents[:70] if d in validation]


def test_split_documents_refuses_what_cannot_be_split():
    with pytest.raises(ValueError, match="validation_share: expected 0 < share < 1, got 1"):
        split_documents([["a"]], 1)
    with pytest.raises(ValueError, match="enough for training and validation, got 1 and 0"):
        split_documents([["a"]], 0.001)


def test_a_given_validation_set_shares_no_sentence_with_the_others(corpus):
    whole = split_pairs(corpus)
    validation = [("new", whole.train[0][1].upper()), (whole.test[0][0], "new"), ("x", "y")]
    split = split_with_validation(corpus, validation)
    assert split.validation == validation
    held_out = sides(validation)
    for part, before in ((split.train, whole.train + whole.validation), (split.test, whole.test)):
        assert held_out.isdisjoint(sides(part))
        assert len(before) - 10 < len(part) < len(before)
