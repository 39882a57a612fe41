"""Together the workers have every row of an epoch once, in the same steps and shapes."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.data import BucketedBatches
from tf_transformer.distribution import Workers, own_rows
from tf_transformer.functional.labels import real_labels

pytestmark = pytest.mark.one_of(10, "runs")

rng = np.random.default_rng(3)
IDS = [[int(n) + 3] * int(rng.integers(1, 9)) for n in range(97)]
BATCHES = BucketedBatches(
    IDS, IDS[::-1], start_id=1, end_id=2, lengths=(5, 10), tokens_per_batch=50, seed=2
)


def shares(count, replicas=1, **options):
    """The batches of an epoch of each worker."""
    dataset = BATCHES.dataset(**{"epochs": 1, **options})
    return [own_rows(dataset, Workers(index, count), replicas) for index in range(count)]


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
    found = [list(rows(share)) for share in shares(count, first_epoch=4)]
    assert len(expected) == 97 and sorted(itertools.chain(*found)) == expected
    assert max(map(len, found)) - min(map(len, found)) <= BATCHES.steps_per_epoch


@pytest.mark.parametrize("count", [2, 3])
def test_every_worker_has_as_many_steps_of_the_same_shapes(count):
    epochs = [list(share) for share in shares(count)]
    for batch, *parts in zip(BATCHES.epoch(0), *epochs, strict=True):
        wanted = {(-(-len(batch[1]) // count), batch[1].shape[1])}
        assert {tuple(part[1].shape) for part in parts} == wanted
        assert {tuple(part[0][0].shape) for part in parts} == wanted


def test_replicas_divide_the_rows():
    [share] = shares(1, replicas=4)
    for one, other in zip(share, BATCHES.epoch(0), strict=True):
        assert len(one[1]) % 4 == 0 and len(one[1]) - len(other[1]) < 4
        np.testing.assert_array_equal(one[1][: len(other[1])], other[1])


def test_a_share_is_a_data_set_like_the_whole():
    whole = BATCHES.dataset(2, 3, epochs=2)
    for share in shares(3, first_epoch=2, first_step=3, epochs=2):
        assert share.element_spec == whole.element_spec
        assert int(share.cardinality()) == int(whole.cardinality())


def test_rows_of_padding_are_no_class():
    dataset = tf.data.Dataset.from_tensors(({"ids": [[5], [6], [7]]}, [0, 1, 0]))
    [(inputs, labels)] = own_rows(dataset, Workers(1, 2))
    np.testing.assert_array_equal(inputs["ids"], [[6], [0]])
    np.testing.assert_array_equal(labels, [1, tf.int32.min])


@pytest.mark.parametrize("labels", [[[2, 0], [0, 1], [1, 2]], [[0], [1], [0]]])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "float32"])
def test_rows_of_padding_count_in_no_task(labels, dtype):
    """Tokens whose class 0 counts, and classes of shape (B, 1)."""
    labels = np.array(labels, dtype)
    weights = np.ones(3, np.float32)
    dataset = tf.data.Dataset.from_tensors(([[5], [6], [7]], labels, weights))
    [(inputs, own, own_weights)] = own_rows(dataset, Workers(1, 2))
    np.testing.assert_array_equal(inputs, [[6], [0]])
    np.testing.assert_array_equal(own_weights, [1, 0])
    np.testing.assert_array_equal(own[0], labels[1])
    for ignore_class in (-100, None):
        np.testing.assert_array_equal(
            real_labels(own, ignore_class), np.array([1, 0])[:, None] + 0 * labels[:2]
        )


def test_ragged_rows():
    ids = tf.ragged.constant([[5, 6], [7], [8, 9, 4]])
    dataset = tf.data.Dataset.from_tensors((ids, [0, 1, 0]))
    found = [own_rows(dataset, Workers(index, 2)) for index in range(2)]
    [first], [second] = ([inputs.to_list() for inputs, _ in share] for share in found)
    assert first == [[5, 6], [8, 9, 4]] and second == [[7], []]


def test_one_process_has_all_rows():
    dataset = BATCHES.dataset()
    assert own_rows(dataset) is dataset
