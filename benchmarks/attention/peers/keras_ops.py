"""`keras.ops.dot_product_attention` in a TensorFlow graph."""

import keras
import tensorflow as tf

from benchmarks.attention.peers.plain_tensorflow import timed


def attention(case):
    """Keras takes (batch, length, heads, width), hence the transpositions."""

    def attend(q, k, v):
        q, k, v = (tf.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
        output = keras.ops.dot_product_attention(q, k, v, is_causal=case["causal"])
        return tf.transpose(output, (0, 2, 1, 3))

    return attend


def variants(case, arrays):
    """As a plain graph."""
    return {"Keras": timed(attention(case), case, arrays)}
