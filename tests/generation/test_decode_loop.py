"""Finished sentences leave the batch: the output is the same, with less computation."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import gather_rows
from tf_transformer.generation.decoding import decode_loop

pytestmark = pytest.mark.one_of(10, "layers")


def stay(state, kept, room):
    """Resize a state of sentences that has no time axis."""
    return gather_rows(state, kept)


def count_up(goals, resize=None, seen=None, jit_compile=False, fails_at=-1):
    """Count each sentence up to its goal; append the batch size of every step to `seen`."""

    def step(position, state, sentences):
        if seen is not None:
            tf.numpy_function(lambda size: seen.append(int(size)), [tf.shape(state)[0]], [])
        output = tf.where(sentences["done"], sentences["output"], sentences["output"] + 1)
        return state, {"done": output >= state, "output": output}, tf.equal(position, fails_at)

    goals = tf.constant(goals)
    sentences = {"done": tf.fill(tf.shape(goals), False), "output": tf.zeros_like(goals)}
    return decode_loop(step, goals, sentences, resize, jit_compile)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 16, 17, 37])
@pytest.mark.parametrize("mode", ["whole", "whole, XLA", "leaving", "leaving, XLA inside"])
@pytest.mark.one_of(10)
def test_everything_comes_back_to_its_place(mode, size):
    goals = np.random.default_rng(size).integers(1, 19, size).astype(np.int32)
    resize = None if mode.startswith("whole") else stay
    graph = tf.function(lambda: count_up(goals, resize, jit_compile="XLA" in mode), autograph=False)
    output, failed_step = graph()
    np.testing.assert_array_equal(output, goals)
    assert failed_step == -1


def test_the_batch_is_halved_whenever_half_is_done():
    goals = [1] * 20 + [3] * 13 + [4] * 3 + [6]  # 37 sentences
    seen = []
    graph = tf.function(lambda: count_up(goals, stay, seen), autograph=False)
    np.testing.assert_array_equal(graph()[0], goals)
    # After three steps 4 of 18 are unfinished: the batch is halved twice, to 9 and to 4.
    assert seen == [37, 18, 18, 4, 4, 4]
    seen.clear()
    graph = tf.function(lambda: count_up(goals, None, seen), autograph=False)
    graph()
    assert seen == [37] * 6


@pytest.mark.parametrize("jit_compile", [False, True])
def test_there_is_room_for_every_step(jit_compile):
    goals = np.array([70, 3, 16, 17, 33, 32, 9, 1, 64, 5, 2], np.int32)  # 11 sentences
    rooms = []

    def step(position, state, sentences):
        goals, room = state
        tf.debugging.assert_less(position, tf.size(room))
        room = tf.tensor_scatter_nd_update(room, [[position]], [1])
        output = tf.where(sentences["done"], sentences["output"], sentences["output"] + 1)
        return (goals, room), {"done": output >= goals, "output": output}, False

    def resize(state, kept, room):
        goals, old = state
        tf.numpy_function(lambda size: rooms.append(int(size)), [room], [])
        return tf.gather(goals, kept), tf.pad(old, [[0, room - tf.size(old)]])

    def decode():
        sentences = {"done": tf.fill((11,), False), "output": tf.zeros(11, tf.int32)}
        state = (tf.constant(goals), tf.zeros(0, tf.int32))
        return decode_loop(step, state, sentences, resize, jit_compile)

    output, failed_step = tf.function(decode, autograph=False)()
    np.testing.assert_array_equal(output, goals)
    assert failed_step == -1
    assert sorted(set(rooms)) == [16, 32, 64, 128] and rooms == sorted(rooms)


@pytest.mark.parametrize("resize", [None, stay])
def test_a_broken_model_ends_it_at_once(resize):
    output, failed_step = count_up([9] * 20, resize, fails_at=3)
    assert failed_step == 3
    np.testing.assert_array_equal(output, [4] * 20)
