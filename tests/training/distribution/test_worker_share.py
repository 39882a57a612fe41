"""Together the workers have every row of an epoch once, in the same steps and shapes."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.data import BucketedBatches
from tf_transformer.training.distribution import Workers, WorkerShare

rng = np.random.default_rng(3)
IDS = [[int(n) + 3] * int(rng.integers(1, 9)) for n in range(97)]
BATCHES = BucketedBatches(
    IDS, IDS[::-1], start_id=1, end_id=2, lengths=(5, 10), tokens_per_batch=50, seed=2
)


def shares(count):
    return [WorkerShare(BATCHES, Workers(index, count)) for index in range(count)]


def rows(batches):
    """The rows that are no padding, as tuples of all their ids."""
    for batch in batches:
        arrays = [np.asarray(array) for array in tf.nest.flatten(batch)]
        for row in zip(*arrays, strict=True):
            if row[0].any():
                yield tuple(map(tuple, row))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_sentence_is_lost_or_doubled(count):
    expected = sorted(rows(BATCHES.epoch(4)))
    found = [list(rows(share.epoch(4))) for share in shares(count)]
    assert len(expected) == 97 and sorted(itertools.chain(*found)) == expected
    assert max(map(len, found)) - min(map(len, found)) <= BATCHES.steps_per_epoch


@pytest.mark.parametrize("count", [2, 3])
def test_every_worker_has_as_many_steps_of_the_same_shapes(count):
    epochs = [list(share.epoch(1)) for share in shares(count)]
    for batch, *parts in zip(BATCHES.epoch(1), *epochs, strict=True):
        wanted = {(-(-len(batch[1]) // count), batch[1].shape[1])}
        assert {part[1].shape for part in parts} == wanted
        assert {part[0][0].shape for part in parts} == wanted
    assert {share.steps_per_epoch for share in shares(count)} == {BATCHES.steps_per_epoch}


def test_replicas_divide_the_rows():
    for one, other in zip(
        WorkerShare(BATCHES, Workers(), replicas=4).epoch(0), BATCHES.epoch(0), strict=True
    ):
        assert len(one[1]) % 4 == 0 and len(one[1]) - len(other[1]) < 4
        np.testing.assert_array_equal(one[1][: len(other[1])], other[1])


def test_the_data_set_starts_at_any_step():
    share = shares(3)[1]
    expected = [*share.epoch(2, 3), *share.epoch(3)]
    found = list(share.dataset(2, 3, epochs=2))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[0][1], other[0][1])
        np.testing.assert_array_equal(one[1], other[1])
    assert share.dataset().element_spec == BATCHES.dataset().element_spec
