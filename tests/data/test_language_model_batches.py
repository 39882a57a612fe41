"""Every token of every document is predicted once, from the tokens before it in its block."""

import numpy as np
import pytest

from tf_transformer.data import LanguageModelBatches

DOCUMENTS = [[10 + n] * (n % 23) for n in range(41)]


def make(seed=3, **changes):
    options = {"lengths": (3, 5, 8), "tokens_per_batch": 24, "start_id": 1, "end_id": 2}
    return LanguageModelBatches(DOCUMENTS, seed=seed, **{**options, **changes})


def blocks_of(batches):
    """Return (ids, labels) of the rows that are not padding, without padding."""
    found = []
    for ids, labels in batches:
        assert ids.shape == labels.shape and ids.dtype == labels.dtype == np.int32
        for i, x in zip(ids, labels, strict=True):
            assert ((i == 0) == (x == 0)).all()
            if i.any():
                i, x = i[i > 0].tolist(), x[x > 0].tolist()
                assert i[1:] == x[:-1]
                found.append((i, x))
    return found


def test_every_token_is_predicted_once():
    blocks = blocks_of(make().epoch(0))
    expected = sorted(token for d in DOCUMENTS for token in [*d, 2])
    assert sorted(token for _, labels in blocks for token in labels) == expected
    assert sum(ids[0] == 1 for ids, _ in blocks) == len(DOCUMENTS)
    assert all(1 not in ids[1:] and 2 not in ids for ids, _ in blocks)
    assert make().dropped == 0


def test_the_longest_block_is_that_of_the_largest_bucket():
    sizes = [len(ids) for ids, _ in blocks_of(make().epoch(0))]
    assert max(sizes) == 8 and sizes.count(8) == sum((len(d) + 1) // 8 for d in DOCUMENTS)
    assert {ids.shape for ids, _ in make().epoch(0)} == {(8, 3), (4, 5), (3, 8)}


def test_order_depends_on_seed_and_epoch_alone():
    assert blocks_of(make().epoch(4)) == blocks_of(make().epoch(4))
    assert blocks_of(make().epoch(4)) != blocks_of(make().epoch(5))
    assert blocks_of(make().epoch(4)) != blocks_of(make(seed=4).epoch(4))


def test_the_dataset_resumes_in_the_middle():
    batches = make()
    steps = batches.steps_per_epoch
    rest = blocks_of(
        (ids.numpy(), labels.numpy()) for ids, labels in batches.dataset(1, 2, epochs=2)
    )
    whole = [*batches.epoch(1), *batches.epoch(2)]
    assert len(whole) == 2 * steps
    assert rest == blocks_of(whole[2:])


def test_bad_input():
    with pytest.raises(ValueError, match="documents: expected at least one"):
        LanguageModelBatches([], start_id=1, end_id=2, lengths=(3,), tokens_per_batch=6)
    for lengths in ((), (5, 3), (0,)):
        with pytest.raises(ValueError, match="lengths: expected increasing"):
            make(lengths=lengths)


@pytest.mark.parametrize(("pad_id", "ids", "labels"), [(9, 9, 9), (None, 0, -100)])
def test_padding_of_any_id_or_none(pad_id, ids, labels):
    options = {"start_id": None, "end_id": 4, "lengths": (3,), "tokens_per_batch": 9}
    batches = LanguageModelBatches([[5, 0, 6, 0], [7]], **options, pad_id=pad_id)
    [(found, following)] = batches.epoch(0)
    assert {tuple(i): x for i, x in zip(found.tolist(), following.tolist(), strict=True)} == {
        (5, 0, 6): [0, 6, 0],
        (0, ids, ids): [4, labels, labels],
        (7, ids, ids): [4, labels, labels],
    }


def test_a_row_that_fills_up_a_batch_without_padding():
    options = {"start_id": 1, "end_id": 2, "lengths": (2,), "tokens_per_batch": 4}
    [(ids, labels)] = LanguageModelBatches([[5]], **options, pad_id=None).epoch(0)
    assert ids.tolist() == [[1, 5], [0, 0]] and labels.tolist() == [[5, 2], [-100, -100]]


def test_padding_inside_a_document():
    with pytest.raises(ValueError, match=r"documents: .*got it in text 1. Pass pad_id=model.pad_"):
        make(pad_id=11)
