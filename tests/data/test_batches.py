"""Batches have fixed shapes and every pair once, in an order set by seed and epoch."""

import numpy as np
import pytest

from tf_transformer.data import BucketedBatches

SOURCES = [[10 + i] * (i % 7) for i in range(41)]
TARGETS = [[60 + i] * (i % 5 + 1) for i in range(41)]


def make(seed=3, **changes):
    options = {"lengths": (3, 5, 8), "tokens_per_batch": 24, "start_id": 1, "end_id": 2}
    return BucketedBatches(SOURCES, TARGETS, seed=seed, **{**options, **changes})


def pairs_of(batches):
    """Return the pairs of ids in the batches, without padding."""
    found = []
    for (source, target_in), target_out in batches:
        for s, i, o in zip(source, target_in, target_out, strict=True):
            if not s.any():
                assert not i.any() and not o.any()
                continue
            s, i, o = (row[row > 0].tolist() for row in (s, i, o))
            assert s[-1] == 2 and i[0] == 1 and o[-1] == 2 and i[1:] == o[:-1]
            found.append((s[:-1], o[:-1]))
    return found


def test_every_pair_comes_once_in_an_epoch():
    expected = list(zip(SOURCES, TARGETS, strict=True))
    assert sorted(pairs_of(make().epoch(0))) == sorted(expected)


def test_shapes_are_those_of_the_buckets():
    batches = make()
    seen = [source.shape for (source, _), _ in batches.epoch(0)]
    assert set(seen) == set(batches.shapes) == {(8, 3), (4, 5), (3, 8)}
    assert len(seen) == batches.steps_per_epoch


def test_order_depends_on_seed_and_epoch_alone():
    def order(batches, epoch):
        return pairs_of(batches.epoch(epoch))

    assert order(make(), 4) == order(make(), 4)
    assert order(make(), 4) != order(make(), 5)
    assert order(make(), 4) != order(make(seed=4), 4)


def test_dataset_goes_on_at_any_step():
    batches = make()
    whole = [source for (source, _), _ in batches.dataset(0, epochs=3).as_numpy_iterator()]
    steps = batches.steps_per_epoch
    rest = [source for (source, _), _ in batches.dataset(1, 2, epochs=2).as_numpy_iterator()]
    assert len(whole) == 3 * steps
    for ours, theirs in zip(rest, whole[steps + 2 :], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nothing_holds_up_the_end_of_an_epoch():
    # tf.data's autotuner sleeps for as long as it has run, and a finished iterator waits for it.
    assert make().dataset().options().autotune.enabled is False


def test_pairs_longer_than_the_last_bucket_are_counted():
    batches = make(lengths=(3, 5))
    longer = [max(len(s), len(t)) >= 5 for s, t in zip(SOURCES, TARGETS, strict=True)]
    assert batches.dropped == sum(longer) > 0
    assert len(pairs_of(batches.epoch(0))) == len(SOURCES) - sum(longer)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lengths": (5, 3)}, "lengths: expected increasing"),
        ({"lengths": ()}, "lengths: expected increasing"),
        ({"lengths": (4.5,)}, "lengths: expected increasing ints above 0, got \\(4.5,\\)"),
        ({"tokens_per_batch": 0}, "tokens_per_batch: expected an int of at least 1, got 0"),
        ({"tokens_per_batch": 9.5}, "tokens_per_batch: expected an int of at least 1, got 9.5"),
        ({"lengths": (1,)}, "all longer"),
    ],
)
def test_bad_lengths(changes, said):
    with pytest.raises(ValueError, match=said):
        make(**changes)


def test_sides_of_different_number():
    with pytest.raises(ValueError, match="got 2 sources and 1 targets"):
        BucketedBatches([[5], [6]], [[7]], start_id=1, end_id=2, lengths=(4,), tokens_per_batch=8)


def test_padding_of_any_id_which_may_be_the_start():
    options = {"start_id": 28, "end_id": 0, "pad_id": 28, "lengths": (3, 4), "tokens_per_batch": 8}
    batches = BucketedBatches([[5], [6, 7, 8]], [[9, 4], [3]], **options)
    small, large = sorted(batches.epoch(0), key=lambda batch: batch[1].shape[1])
    (source, target_in), target_out = small
    assert source.tolist() == [[5, 0, 28], [28, 28, 28]]
    assert target_in.tolist() == [[28, 9, 4], [28, 28, 28]]
    assert target_out.tolist() == [[9, 4, 0], [28, 28, 28]]
    (source, target_in), target_out = large
    assert source.tolist() == [[6, 7, 8, 0], [28, 28, 28, 28]]
    assert target_in.tolist() == [[28, 3, 28, 28], [28, 28, 28, 28]]
    assert target_out.tolist() == [[3, 0, 28, 28], [28, 28, 28, 28]]


@pytest.mark.parametrize("name", ["sources", "targets"])
def test_padding_inside_a_text(name):
    sides = {"sources": [[5], [6]], "targets": [[7], [8]], name: [[5], [6, 1]]}
    options = {"start_id": 2, "end_id": 2, "lengths": (4,), "tokens_per_batch": 8}
    with pytest.raises(ValueError, match=rf"{name}: expected texts without padding, the id 1, got"):
        BucketedBatches(**sides, **options, pad_id=1)
