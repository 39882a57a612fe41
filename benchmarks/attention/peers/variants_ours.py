"""Variants of this library's attention core."""

import tensorflow as tf

from benchmarks.attention.peers.plain_tensorflow import timed
from tf_transformer import AlibiPositions, scaled_dot_product_attention
from tf_transformer.functional.attention.scaled_dot_product import grouped_attention
from tf_transformer.functional.positions import rotate


def rotary(q, k, v):
    """The turned queries and keys, in one tensor, since there is one gradient."""
    positions = tf.range(q.shape[2])
    return tf.concat([rotate(x, positions, pairing="halves") for x in (q, k)], 0)


def attend(case):
    """The function of a case."""
    unweighted = {"return_attention_weights": False}
    if case["variant"] == "alibi":
        part = AlibiPositions()

        def attention(q, k, v):
            bias = part.by_distance(q, k.shape[2], False)
            return scaled_dot_product_attention(q, k, v, bias=bias, **unweighted)[0]

    elif case["variant"] == "grouped":

        def attention(q, k, v):
            return grouped_attention(q, k, v, q.shape[1] // k.shape[1], **unweighted)[0]

    else:

        def attention(q, k, v):
            return scaled_dot_product_attention(q, k, v, window=case["r"], **unweighted)[0]

    return attention


def variants(case, arrays):
    """As a plain graph, which is what "auto" runs on a CPU."""
    if case["variant"] == "rotary":
        arrays = {**arrays, "g": tf.concat([arrays["g"]] * 2, 0)}
        return {"tf_transformer": timed(rotary, case, arrays)}
    return {"tf_transformer": timed(attend(case), case, arrays)}
