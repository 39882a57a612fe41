"""Walking from token to token in many words in parallel. W words, C positions."""

import tensorflow as tf


def follow(start, goal, jump_at):
    """Jump from position to position in every word until its goal."""
    start, goal = tf.convert_to_tensor(start), tf.convert_to_tensor(goal)

    def step(words, places, is_visited, arrives):
        jumps = tf.gather(jump_at, places)
        goes_on = jumps != 0
        words, places = tf.boolean_mask(words, goes_on), tf.boolean_mask(places, goes_on)
        is_visited = _mark(is_visited, places)
        places += tf.boolean_mask(jumps, goes_on)
        is_there = places == tf.gather(goal, words)
        arrives = _mark(arrives, tf.boolean_mask(words, is_there))
        return (
            tf.boolean_mask(words, ~is_there),
            tf.boolean_mask(places, ~is_there),
            is_visited,
            arrives,
        )

    state = (
        tf.range(tf.size(start)),
        start,
        tf.zeros_like(jump_at, tf.bool),
        tf.zeros_like(start, tf.bool),
    )
    *_, is_visited, arrives = tf.while_loop(
        lambda words, *_: tf.size(words) > 0,
        step,
        state,
        shape_invariants=(tf.TensorShape([None]),) * 4,
    )
    return is_visited, arrives


def _mark(flags, places):
    return tf.tensor_scatter_nd_update(
        flags, places[:, tf.newaxis], tf.fill(tf.shape(places), True)
    )
