import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import compile_for, count_compilations
from tf_transformer.export.compile_for import BucketedFunction, traced
from tf_transformer.export.saving import load_saved_model
from tf_transformer.models.bert import BertConfig, BertForTokenClassification, SentenceEncoder

pytestmark = pytest.mark.one_of(10, "served")

IDS = tf.TensorSpec((None, None), tf.int32)
SPECS = {"input_ids": IDS, "attention_mask": IDS}


def texts(rows, length, seed=0):
    """Ids with a mask whose rows end at different places."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, length + 1, (rows, 1))
    mask = (np.arange(length) < lengths).astype(np.int32)
    return {"input_ids": rng.integers(1, 11, (rows, length)) * mask, "attention_mask": mask}


@pytest.fixture(scope="module")
def sentence_encoder():
    return SentenceEncoder(BertConfig(11, 8, 2, 2, 16))


@pytest.fixture(scope="module")
def encode(sentence_encoder):
    return compile_for(lambda x: sentence_encoder(x, training=False), SPECS, [2, 3], [4, 7])


@pytest.mark.parametrize("is_loaded", [False, True])
def test_arguments_that_do_not_fit_do_not_block_other_threads(is_loaded, tmp_path):
    module, found = tf.Module(), []
    module.double = traced(lambda x: x + x, tf.TensorSpec((None,), tf.int32))
    if is_loaded:
        tf.saved_model.save(module, tmp_path / "saved")
        module = load_saved_model(tmp_path / "saved")
    for _ in range(2):
        with pytest.raises(TypeError, match="Binding inputs to tf.function failed"):
            module.double("a")
    thread = threading.Thread(target=lambda: found.append(module.double([2, 3])), daemon=True)
    thread.start()
    thread.join(30)
    assert [x.numpy().tolist() for x in found] == [[4, 6]]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (2, 5), (3, 7), (1, 7), (4, 5), (2, 11)])
def test_results_are_those_of_the_function(encode, sentence_encoder, shape):
    inputs = texts(*shape)
    expected = sentence_encoder({k: tf.cast(v, tf.int32) for k, v in inputs.items()})
    np.testing.assert_allclose(encode(inputs), expected, rtol=1e-5, atol=1e-5)


def test_no_call_compiles_another_program(encode):
    assert encode.programs == 4
    encode(texts(1, 1))
    with count_compilations() as built:
        for rows in range(1, 5):
            for length in range(1, 9):
                assert encode(texts(rows, length)).shape == (rows, 8)
    assert built.xla == built.traces == 0 and encode.programs == 4


def test_an_axis_of_the_results_is_cut_to_the_length():
    model = BertForTokenClassification(BertConfig(11, 8, 1, 2, 16, labels=("a", "b", "c")))
    tag = compile_for(lambda x: model(x, training=False), SPECS, [3], [8])
    inputs = {k: tf.cast(v, tf.int32) for k, v in texts(2, 5).items()}
    for one, other in zip(
        tf.nest.flatten(tag(inputs)), tf.nest.flatten(model(inputs)), strict=True
    ):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_results_without_a_batch_axis_stay_whole():
    facts = {"width": tf.constant(3), "names": tf.constant([5, 6])}
    compiled = compile_for(lambda x: {"double": 2 * x, **facts}, IDS, [2], [4])
    for shape in ((1, 3), (3, 5)):  # a program, and the plain graph
        found = compiled(tf.ones(shape, tf.int32))
        assert found["double"].shape == shape
        assert int(found["width"]) == 3 and found["names"].numpy().tolist() == [5, 6]


def test_the_plain_graph_answers_until_a_program_is_ready(monkeypatch):
    may_compile, warm_up = threading.Event(), BucketedFunction.warm_up

    def later(*arguments):
        may_compile.wait(60)
        return warm_up(*arguments)

    monkeypatch.setattr(BucketedFunction, "warm_up", later)
    spec = tf.TensorSpec((None, None))
    doubled = compile_for(lambda x: 2 * x, spec, [2], [3, 4], background=True)
    assert doubled(tf.ones((1, 2))).numpy().tolist() == [[2, 2]] and doubled.programs == 0
    may_compile.set()
    doubled.wait()
    assert doubled(tf.ones((1, 2))).numpy().tolist() == [[2, 2]] and doubled.programs == 2


def unfit(x):
    return tf.strings.length(tf.strings.as_string(x))  # XLA has no strings


def test_what_xla_cannot_compile_is_an_error_in_the_foreground():
    with pytest.raises(tf.errors.InvalidArgumentError, match="unsupported operations"):
        compile_for(unfit, IDS, [1], [2])


def test_what_xla_cannot_compile_is_served_as_a_plain_graph_in_the_background(caplog):
    with caplog.at_level(logging.WARNING, "tf_transformer"):
        lengths = compile_for(unfit, IDS, [1], [2], background=True)
        lengths.wait()
    assert "a call failed" in caplog.text and "unsupported operations" in caplog.text
    assert lengths(tf.constant([[7, 123]])).numpy().tolist() == [[1, 3]]
    assert lengths.programs == 0


def test_a_batch_beyond_the_buckets_is_logged_once(caplog):
    double = compile_for(lambda x: 2 * x, IDS, [2], [4])
    with caplog.at_level(logging.WARNING, "tf_transformer"):
        for shape in ((3, 1), (1, 5), (3, 5)):
            assert double(tf.ones(shape, tf.int32)).shape == shape
    [record] = [record for record in caplog.records if record.name == "tf_transformer"]
    assert "shape (3, 1) exceeds the largest bucket, (2, 4)" in record.getMessage()


# Bad input


@pytest.mark.parametrize("sizes", [[], [0], [4, 4], [8, 4], [2.0], [True], [-1, 3]])
@pytest.mark.parametrize("name", ["rows", "lengths"])
def test_sizes_are_ascending_integers(name, sizes):
    arguments = {"rows": [1], "lengths": [4], name: sizes}
    with pytest.raises(ValueError, match=f"{name}: expected one or more ascending positive integ"):
        compile_for(lambda x: x, IDS, **arguments)


@pytest.mark.parametrize("spec", [tf.TensorSpec((None, 3)), tf.TensorSpec((None,)), (2, 3)])
def test_specs_leave_batch_and_length_open(spec):
    with pytest.raises(ValueError, match=r"specs: expected tf.TensorSpec\(\(None, None\), dtype\)"):
        compile_for(lambda x: x, {"ids": spec}, [1], [4])


def test_a_function_without_a_mask_is_refused(sentence_encoder):
    with pytest.raises(ValueError, match="function: .* padded with zeros.*Pass the padding mask"):
        compile_for(lambda x: sentence_encoder(x, training=False), {"input_ids": IDS}, [2], [4])


@pytest.mark.parametrize(
    "inputs", [{"input_ids": tf.ones((1, 2), tf.int32)}, tf.ones((1, 2), tf.int32)]
)
def test_inputs_have_the_structure_of_the_specs(encode, inputs):
    with pytest.raises(ValueError, match="inputs: expected tensors or arrays in the structure of"):
        encode(inputs)


def test_inputs_have_one_shape(encode):
    ids = tf.ones((1, 2), tf.int32)
    with pytest.raises(
        ValueError, match=r"inputs: expected tensors of one shape.*\(1, 2\), \(2, 1"
    ):
        encode({"input_ids": ids, "attention_mask": tf.transpose(ids)})
