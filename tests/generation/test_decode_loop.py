"""Finished sentences leave the batch: what comes out is the same, and less is done."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import gather_rows
from tf_transformer.generation.decode_loop import decode_loop


def count_up(goals, select=None, seen=None, jit_compile=False, breaks_at=-1):
    """Each sentence counts to its goal; `seen` is told the size of the batch at every step."""

    def step(position, state, rows):
        if seen is not None:
            tf.numpy_function(lambda size: seen.append(int(size)), [tf.shape(state)[0]], [])
        output = tf.where(rows["done"], rows["output"], rows["output"] + 1)
        return state, {"done": output >= state, "output": output}, tf.equal(position, breaks_at)

    goals = tf.constant(goals)
    rows = {"done": tf.fill(tf.shape(goals), False), "output": tf.zeros_like(goals)}
    return decode_loop(step, goals, rows, select, jit_compile)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 16, 17, 37])
@pytest.mark.parametrize("mode", ["whole", "leaving", "leaving, XLA inside"])
def test_everything_comes_back_to_its_place(mode, size):
    goals = np.random.default_rng(size).integers(1, 19, size).astype(np.int32)
    select = None if mode == "whole" else gather_rows
    graph = tf.function(lambda: count_up(goals, select, jit_compile="XLA" in mode), autograph=False)
    output, broken = graph()
    np.testing.assert_array_equal(output, goals)
    assert broken == -1


def test_the_batch_is_halved_whenever_half_is_done():
    goals = [1] * 20 + [3] * 13 + [4] * 3 + [6]  # 37
    seen = []
    graph = tf.function(lambda: count_up(goals, gather_rows, seen), autograph=False)
    np.testing.assert_array_equal(graph()[0], goals)
    # 4 of 18 are open after three steps: halved twice, to 9 and to 4.
    assert seen == [37, 18, 18, 4, 4, 4]
    seen.clear()
    graph = tf.function(lambda: count_up(goals, None, seen), autograph=False)
    graph()
    assert seen == [37] * 6


@pytest.mark.parametrize("select", [None, gather_rows])
def test_a_broken_model_ends_it_at_once(select):
    output, broken = count_up([9] * 20, select, breaks_at=3)
    assert broken == 3
    np.testing.assert_array_equal(output, [4] * 20)


def test_compiling_needs_a_way_to_leave():
    with pytest.raises(ValueError, match="jit_compile: expected select beside it"):
        count_up([1, 2], None, jit_compile=True)
