"""Gathering and repeating the rows of a state."""

import pytest
import tensorflow as tf

from tf_transformer import gather_rows, repeat_rows


def test_rows_of_unknown_rank_are_refused():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def gather(state):
        return gather_rows(state, [0])

    with pytest.raises(ValueError, match="state: expected tensors of known rank"):
        gather(tf.zeros((2, 3)))


def test_repeated_rows():
    state = repeat_rows({"a": tf.constant([[1], [2]]), "b": tf.constant(3)}, 2)
    assert state["a"].numpy().tolist() == [[1], [1], [2], [2]] and state["b"] == 3
