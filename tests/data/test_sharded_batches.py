"""An epoch over shards has every pair once, in a random order that an epoch's number settles."""

import importlib
import threading

import numpy as np
import pytest

from tf_transformer.data import PairSource, PreparedPairs, ShardedBatches, prepare_pairs

pytestmark = pytest.mark.one_of(10, "runs")

module = importlib.import_module("tf_transformer.data.preparing")
ENDS = {"start_id": 1, "end_id": 2}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    lines = [f"{'ab ' * (n % 13)}{n}\t{'cd ' * (n % 7)}{n}\n" for n in range(1, 700)]
    (folder / "pairs.tsv").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PAIRS", 100)
        source = PairSource(tsv=str(folder / "pairs.tsv"))
        return PreparedPairs(prepare_pairs(source, folder / "prepared", vocab_size=300))


@pytest.fixture
def batches(pairs):
    return ShardedBatches(pairs, lengths=(6, 8, 12), tokens_per_batch=48, seed=5, **ENDS)


def rows_of(batches, number, first_step=0):
    """The pairs of ids in an epoch, in order."""
    for (source, target_in), target_out in batches.epoch(number, first_step):
        np.testing.assert_array_equal(target_in[:, 0] != 0, target_out[:, 0] != 0)
        for one, other in zip(source, target_out, strict=True):
            if one.any():
                yield tuple(one[one != 0]), tuple(other[other != 0])


def test_every_pair_once_in_another_order_each_epoch(pairs, batches):
    expected = [
        (*((*map(int, source), 2),), *((*map(int, target), 2),))
        for number in range(len(pairs.shards))
        for source, target in zip(*pairs.read(number), strict=True)
    ]
    fitting = [pair for pair in expected if max(map(len, pair)) <= 12]
    assert 0 < batches.dropped == len(expected) - len(fitting)
    epochs = [list(rows_of(batches, number)) for number in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == sorted(fitting) and epoch != fitting
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert epochs[1] == list(rows_of(batches, 1))


def test_shapes_and_steps_are_known_without_reading(pairs, batches, monkeypatch):
    shapes, steps = batches.shapes, batches.steps_per_epoch
    found = [source.shape for (source, _), _ in batches.epoch(3)]
    assert len(found) == steps and set(found) == set(shapes) == {(8, 6), (6, 8), (4, 12)}
    monkeypatch.setattr(pairs, "read", None)
    again = ShardedBatches(pairs, lengths=(6, 8, 12), tokens_per_batch=48, seed=5, **ENDS)
    assert (again.shapes, again.steps_per_epoch) == (shapes, steps)


@pytest.mark.slow
def test_from_any_step_and_without_the_shards_before(pairs, batches, monkeypatch):
    whole = list(batches.epoch(2))
    read, seen = pairs.read, []
    monkeypatch.setattr(pairs, "read", lambda number: seen.append(number) or read(number))
    for step in range(len(whole) + 1):
        for one, other in zip(batches.epoch(2, step), whole[step:], strict=True):
            np.testing.assert_array_equal(one[0][0], other[0][0])
            np.testing.assert_array_equal(one[1], other[1])
    seen.clear()
    list(batches.epoch(2, len(whole) - 1))
    assert len(seen) == 1
    resumed = batches.dataset(1, len(whole) - 3, epochs=2)
    assert int(resumed.cardinality()) == len(list(resumed)) == len(whole) + 3


def test_two_shards_are_in_memory_and_none_after_a_stop(pairs, batches, monkeypatch):
    read, seen = pairs.read, []
    monkeypatch.setattr(pairs, "read", lambda number: seen.append(number) or read(number))
    before, epoch = threading.active_count(), batches.epoch(0)
    next(epoch)
    epoch.close()
    assert len(seen) <= 2 and threading.active_count() == before


def test_a_shard_that_is_damaged_stops_the_epoch(pairs, batches, monkeypatch):
    def damaged(number):
        raise ValueError("shard: damaged")

    monkeypatch.setattr(pairs, "read", damaged)
    with pytest.raises(ValueError, match="shard: damaged"):
        next(batches.epoch(0))


def test_pairs_that_are_all_too_long(pairs):
    with pytest.raises(ValueError, match="lengths: expected a pair of at most 1 tokens per side"):
        ShardedBatches(pairs, lengths=(2,), tokens_per_batch=96, **ENDS)
    with pytest.raises(ValueError, match="lengths: expected increasing ints above 0"):
        ShardedBatches(pairs, lengths=(9, 2), tokens_per_batch=96, **ENDS)
