"""Small batches take XLA's program once it is there, and never wait for it."""

import pytest
import tensorflow as tf
from tensorflow.python.saved_model.fingerprinting_utils import write_fingerprint

from tf_transformer import count_compilations, warm_up_in_background
from tf_transformer.export.compile_for import BucketedFunction
from tf_transformer.export.saving import load_saved_model, save_module

pytestmark = pytest.mark.one_of(3, "core")

_IDS = tf.TensorSpec((None, None), tf.int32)


class Doubled(tf.Module):
    """`2 x` by XLA and `3 x` as a plain graph, so that a result shows which one ran."""

    def __init__(self, at_once=False):
        super().__init__()
        by_xla = tf.function(lambda x: 2 * x, jit_compile=True, autograph=False)
        self._small = BucketedFunction(
            by_xla, lambda x: 3 * x, _IDS, (1, 2, 4, 8), (8, 16, 20), at_once
        )
        self.compute = tf.function(self.compute, input_signature=[_IDS], autograph=False)
        self.warm_up = self._small.warm_up

    def compute(self, ids):
        return self._small(ids)


def form(model, rows, length):
    """The form that serves a batch: 2 for XLA, 3 for the plain graph."""
    result = model.compute(tf.ones((rows, length), tf.int32)).numpy()
    assert result.shape[0] == rows and set(result[:, :length].flat) in ({2}, {3})
    assert not result[:, length:].any()
    return int(result[0, 0])


def test_what_is_not_compiled_is_plain_and_compiles_nothing():
    model = Doubled()
    with count_compilations() as built:
        assert [form(model, *shape) for shape in ((1, 1), (8, 20), (9, 3), (2, 21))] == [3] * 4
        assert model.compute(tf.ones((3, 5), tf.int32)).shape == (3, 5)  # not padded
    assert built.xla == 0


def test_one_program_serves_its_bucket_and_no_other():
    model = Doubled()
    with count_compilations() as built:
        assert [int(model.warm_up(*sizes)) for sizes in ((3, 9), (4, 16), (1, 17))] == [1, 1, 2]
    assert built.xla == 2
    with count_compilations() as built:
        same = ((3, 9), (4, 16), (4, 9), (1, 17), (1, 20))
        assert [form(model, *shape) for shape in same] == [2] * 5
        others = ((2, 16), (5, 9), (4, 8), (4, 17), (1, 16), (2, 20), (1, 21), (16, 16))
        assert [form(model, *shape) for shape in others] == [3] * 8
    assert built.xla == 0


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (2, 0), (9, 8), (1, 21)])
def test_what_has_no_bucket(shape, at_once):
    model = Doubled(at_once)
    length = max(shape[1], 8) if at_once else shape[1]
    assert model.compute(tf.ones(shape, tf.int32)).shape == (shape[0], length)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 1, at most 8 and 20"):
        model.warm_up(*shape)


def test_at_once_compiles_what_it_meets():
    model = Doubled(at_once=True)
    with count_compilations() as built:
        assert [form(model, *shape) for shape in ((1, 3), (1, 8), (2, 3), (9, 3))] == [2, 2, 2, 3]
    assert built.xla == 2


def test_a_saved_model_starts_cold_and_the_saved_one_stays_warm(tmp_path):
    model = Doubled()
    model.warm_up(1, 8)
    save_module(model, tmp_path / "model", {})
    assert form(model, 1, 8) == 2
    loaded = load_saved_model(tmp_path / "model")
    assert form(loaded, 1, 8) == 3
    assert int(loaded.warm_up(1, 8)) == 1 and form(loaded, 1, 8) == 2


def test_it_serves_while_it_warms_up():
    model, seen = Doubled(), []
    thread = warm_up_in_background(model.warm_up, [(1, 8), (2, 8), (1, 20)])
    while thread.is_alive():
        seen.append(form(model, 1, 20))
    thread.join()
    assert form(model, 1, 20) == 2 and seen == sorted(seen, reverse=True)


def test_the_fingerprint_is_that_of_the_written_file(tmp_path):
    save_module(Doubled(), tmp_path / "model", {})
    read = tf.saved_model.experimental.read_fingerprint
    before = read(str(tmp_path / "model"))
    write_fingerprint(str(tmp_path / "model"))
    assert read(str(tmp_path / "model")).saved_model_checksum == before.saved_model_checksum
