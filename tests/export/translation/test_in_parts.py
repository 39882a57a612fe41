"""Batches split into parts: rows keep their order; rows and cores limit the number of parts.

What is chosen by the device: parts on a CPU, XLA on an accelerator.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import Transformer, count_compilations
from tf_transformer.export.translation import translator as module


@pytest.mark.parametrize(
    ("cores", "rows", "parts"),
    [
        (1, 64, 1),
        (2, 16, 1),
        (2, 32, 2),
        (3, 64, 2),
        (4, 32, 2),
        (4, 64, 4),
        (96, 256, 4),
        (2, 0, 1),
    ],
)
def test_as_many_parts_as_rows_and_cores_allow(monkeypatch, cores, rows, parts):
    monkeypatch.setattr(module, "cores", lambda: cores)
    traces, seen = [], []

    def decode(ids):
        traces.append(ids)
        tf.py_function(lambda part: seen.append(part.numpy()), [ids], [])
        return ids * 2, tf.reduce_sum(ids, axis=1)

    ids = np.arange(3 * rows, dtype=np.int32).reshape(rows, 3)
    twice, sums = tf.function(module.in_parts, autograph=False)(decode, tf.constant(ids))
    np.testing.assert_array_equal(twice, ids * 2)
    np.testing.assert_array_equal(sums, ids.sum(1))
    assert len(traces) == 1
    assert [len(part) for part in seen] == [rows // parts] * parts
    for part in seen:  # rows are dealt out round-robin
        assert (np.diff(part[:, 0]) == 3 * parts).all()


def test_a_gpu_gets_the_whole_batch(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert module.cores() == 1


def test_a_model_with_other_padding_is_refused():
    model = Transformer(1, 8, 2, 16, 11, 11, pe_input=16, pe_target=16, pad_id=10)
    with pytest.raises(ValueError, match="model: expected one whose padding is the id 0, got 10"):
        module.IdTranslator(model, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [False, True], ids=["CPU", "GPU"])
def test_an_accelerator_runs_compiled_programs_by_default(monkeypatch, machine):
    monkeypatch.setattr(module, "has_accelerator", lambda: machine)
    model = Transformer(1, 8, 2, 16, 11, 11, pe_input=16, pe_target=16)
    model.build()
    translator = module.IdTranslator(model, 1, 2)
    with count_compilations() as built:
        translator.greedy(tf.constant([[5, 2]]))
    assert built.xla == machine
