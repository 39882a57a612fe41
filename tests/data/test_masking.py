"""Masking: the paper's rates, whole words, no special tokens, reproducible from the seed."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import mask_tokens

CLS, SEP, MASK, VOCABULARY = 2, 3, 4, 103
RANDOM_IDS = np.arange(5, VOCABULARY)


def make_ids(rows=200, length=67, seed=0):
    """Return rows of [CLS] tokens [SEP] padding, with 0 to `length` - 2 tokens."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((rows, length), np.int32)
    for row, n in zip(ids, rng.integers(0, length - 1, rows), strict=True):
        row[: n + 2] = [CLS, *rng.integers(5, VOCABULARY, n), SEP]
    return ids


def mask(ids, seed=(1, 2), **options):
    ids = tf.constant(ids)
    masked = mask_tokens(ids, ids > 4, seed, mask_id=MASK, random_ids=RANDOM_IDS, **options)
    return [tensor.numpy() for tensor in masked]


def chosen(ids, positions, weights):
    """Return a bool array (B, T), True at masked positions."""
    where = np.zeros(ids.shape, bool)
    rows, slots = np.nonzero(weights)
    where[rows, positions[rows, slots]] = True
    return where


def within(count, trials, share):
    """Return whether `count` is within five standard deviations of its expected value."""
    return abs(count - trials * share) < 5 * np.sqrt(trials * share * (1 - share))


def test_as_many_are_chosen_as_the_paper_says_and_none_is_special():
    ids = make_ids()
    _, positions, _, weights = mask(ids)
    where = chosen(ids, positions, weights)
    assert not where[ids <= 4].any()
    ordinary = (ids > 4).sum(axis=1)
    expected = np.where(ordinary, np.maximum(1, np.round(0.15 * ordinary)), 0)
    np.testing.assert_array_equal(where.sum(axis=1), expected)
    np.testing.assert_array_equal(weights.sum(axis=1), expected)


def test_every_position_is_as_likely_as_any_other():
    ids = np.tile(np.array([CLS, *range(5, 25), SEP, 0], np.int32), (5000, 1))
    _, positions, _, weights = mask(ids)
    counts = chosen(ids, positions, weights)[:, 1:21].sum(axis=0)  # 3 of 20 in every row
    assert within(counts, 5000, 0.15).all()


def test_eighty_ten_ten():
    ids = make_ids(rows=3000)
    inputs, positions, _, weights = mask(ids)
    where = chosen(ids, positions, weights)
    np.testing.assert_array_equal(inputs[~where], ids[~where])
    before, after = ids[where], inputs[where]
    n = len(before)
    # One in 98 random tokens equals the original.
    assert within((after == MASK).sum(), n, 0.8)
    assert within((after == before).sum(), n, 0.1 + 0.1 / 98)
    random = after[(after != MASK) & (after != before)]
    assert within(len(random), n, 0.1 * 97 / 98)
    assert random.min() >= 5
    counts = np.bincount(random, minlength=VOCABULARY)[5:]
    assert within(counts, len(random), 1 / 98).all()


def test_labels_are_what_stood_there_and_positions_increase():
    ids = make_ids()
    _, positions, labels, weights = mask(ids)
    rows, slots = np.nonzero(weights)
    np.testing.assert_array_equal(labels[rows, slots], ids[rows, positions[rows, slots]])
    assert not labels[weights == 0].any() and not positions[weights == 0].any()
    for row, row_weights in zip(positions, weights, strict=True):
        assert np.all(np.diff(row[row_weights > 0]) > 0)
        assert np.all(np.diff(row_weights) <= 0)  # masked positions precede the padding


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_words_are_hidden_whole_or_not_at_all(rate):
    ids = make_ids()
    continues = ids % 3 == 0
    _, positions, _, weights = mask(ids, continues_word=tf.constant(continues), rate=rate)
    where = chosen(ids, positions, weights)
    spread = 0
    for row, row_ids in enumerate(ids):
        words = []
        for t in np.flatnonzero(row_ids > 4):
            if continues[row, t] and words and words[-1][-1] == t - 1:
                words[-1].append(t)
            else:
                words.append([t])
        assert all(len(set(where[row, word])) == 1 for word in words)
        wanted = max(1, np.round(rate * (row_ids > 4).sum())) if words else 0
        left_over = wanted - where[row].sum()
        # Every skipped word is longer than the remaining budget.
        passed_over = [len(word) for word in words if not where[row, word[0]]]
        assert 0 <= left_over < min(passed_over, default=np.inf)
        spread += sum(len(word) > 1 for word in words if where[row, word[0]])
    assert spread > 50


def test_the_same_seed_gives_the_same_masks_and_another_gives_others():
    ids = make_ids()
    first, again, other = mask(ids), mask(ids), mask(ids, seed=(1, 3))
    for ours, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, same)
    assert (first[0] != other[0]).any(axis=1).mean() > 0.9


@pytest.mark.slow
def test_eager_graph_xla_and_a_data_set_agree_and_shapes_are_static():
    ids = make_ids(rows=8, length=20)
    continues = tf.constant(ids % 3 == 0)
    expected = mask(ids, continues_word=continues)

    def masked(ids, continues):
        return mask_tokens(
            ids, ids > 4, (1, 2), mask_id=MASK, random_ids=RANDOM_IDS, continues_word=continues
        )

    dynamic = (tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None, None), tf.bool))
    for program in (
        tf.function(masked),
        tf.function(masked, input_signature=dynamic),
        tf.function(masked, jit_compile=True),
    ):
        for ours, theirs in zip(program(ids, continues), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    data = tf.data.Dataset.from_tensors((ids, continues)).map(masked)
    assert [spec.shape.as_list() for spec in data.element_spec] == [[8, 20], [8, 4], [8, 4], [8, 4]]
    np.testing.assert_array_equal(next(iter(data)).input_ids, expected[0])


def test_bad_input():
    ids = tf.zeros((2, 3), tf.int32)
    options = {"mask_id": MASK, "random_ids": RANDOM_IDS}
    with pytest.raises(ValueError, match="rate: expected a share in \\(0, 1\\), got 15"):
        mask_tokens(ids, ids > 4, (1, 2), rate=15, **options)
    with pytest.raises(ValueError, match="may_mask: expected a bool tensor .* got .*int32"):
        mask_tokens(ids, ids, (1, 2), **options)
    with pytest.raises(ValueError, match=r"continues_word: .* \(2, 4\) with ids \(2, 3\)"):
        mask_tokens(ids, ids > 4, (1, 2), continues_word=tf.ones((2, 4), tf.bool), **options)
