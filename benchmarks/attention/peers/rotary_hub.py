"""keras-hub's rotary layer, as a plain graph."""

import keras_hub
import tensorflow as tf

from benchmarks.attention.peers.plain_tensorflow import timed


def variants(case, arrays):
    """The layer with its own layout, (B, T, N, H), and with the layout of this library's core."""
    own = {name: x.transpose(0, 2, 1, 3) for name, x in arrays.items()}
    own["g"], arrays["g"] = (tf.concat([x["g"]] * 2, 0) for x in (own, arrays))

    def turn(axis):
        layer = keras_hub.layers.RotaryEmbedding(sequence_axis=axis)
        return lambda q, k, v: tf.concat([layer(q), layer(k)], 0)

    return {
        "keras-hub": timed(turn(2), case, arrays),
        "bare keras-hub, (B, T, N, H)": timed(turn(1), case, own),
    }
