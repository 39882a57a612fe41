import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import Transformer
from tf_transformer.export import freeze
from tf_transformer.generation import greedy_decode
from tf_transformer.models.bert import BertConfig, BertForTokenClassification

pytestmark = pytest.mark.one_of(10, "served")

IDS = tf.TensorSpec((None, None), tf.int32)


def texts(rows, length):
    ids = tf.random.stateless_uniform((rows, length), (1, 2), 1, 11, tf.int32)
    return ids, tf.cast(tf.sequence_mask(tf.range(1, rows + 1), length), tf.int32)


def model_of_bert(dtype="float32"):
    model = BertForTokenClassification(
        BertConfig(11, 8, 2, 2, 16, labels=("a", "b", "c")), dtype=dtype
    )
    return model, lambda ids, mask: model(
        {"input_ids": ids, "attention_mask": mask}, training=False
    )


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.02)])
def test_results_are_those_of_the_function(dtype, tolerance):
    _, function = model_of_bert(dtype)
    frozen = freeze(function, IDS, IDS)
    for shape in ((1, 1), (2, 5), (3, 7)):
        expected, actual = function(*texts(*shape)), frozen(*texts(*shape))
        tf.nest.assert_same_structure(expected, actual)
        for one, other in zip(*map(tf.nest.flatten, (expected, actual)), strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(
                tf.cast(one, tf.float32), tf.cast(other, tf.float32), atol=tolerance
            )


@pytest.mark.slow
def test_the_graph_has_no_variables_and_keeps_its_weights():
    model, function = model_of_bert()
    frozen = freeze(function, IDS, IDS)
    before = function(*texts(2, 3))
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    for one, other in zip(*map(tf.nest.flatten, (before, frozen(*texts(2, 3)))), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for changed in tf.nest.flatten(function(*texts(2, 3))):
        assert not np.any(changed)


@pytest.mark.slow
def test_loops_and_tables_stay():
    model = Transformer(1, 8, 2, 16, 7, 7, 16, 16)
    model.build()
    words = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["three", "four"], tf.constant([3, 4])), 5
    )

    def decode(texts):
        state = model.start(words.lookup(texts)[:, tf.newaxis], 7)
        return greedy_decode(
            model.step, state, tf.size(texts), start_id=1, end_id=2, max_length=7, min_length=7
        )

    expected = decode(tf.constant(["four", "six"]))
    frozen = freeze(decode, tf.TensorSpec((None,), tf.string))
    np.testing.assert_array_equal(frozen(np.array(["four", "six"])), expected)
    np.testing.assert_array_equal(decode(tf.constant(["four", "six"])), expected)


def test_what_is_not_a_spec_is_refused():
    with pytest.raises(ValueError, match="specs: expected a tf.TensorSpec.*got 3"):
        freeze(lambda x: x, 3)


def test_another_number_of_arguments_is_refused():
    double = freeze(lambda x: 2 * x, tf.TensorSpec((None,)))
    np.testing.assert_array_equal(double([1.0, 2.0]), [2.0, 4.0])
    with pytest.raises(ValueError, match="inputs: expected 1 arguments.*got 2"):
        double([1.0], [2.0])
