"""The scores of this library, and additive attention of Keras."""

import keras
import tensorflow as tf

from tf_transformer import (
    AdditiveAttention,
    BilinearAttention,
    MultiplicativeAttention,
    scaled_dot_product_attention,
)


class ScaledDotProduct(keras.layers.Layer):
    """The core, as a layer without weights."""

    def call(self, q, k, v, return_attention_weights):
        return scaled_dot_product_attention(
            q, k, v, return_attention_weights=return_attention_weights
        )


class KerasAdditive(keras.layers.AdditiveAttention):
    """With the arguments of the other layers."""

    def __call__(self, q, k, v, return_attention_weights):
        return super().__call__([q, v, k]), None


MAKE = {
    "additive": lambda width: AdditiveAttention(width),
    "bilinear": lambda width: BilinearAttention(),
    "multiplicative": lambda width: MultiplicativeAttention(),
    "scaled dot product": lambda width: ScaledDotProduct(),
    "Keras's additive": lambda width: KerasAdditive(),
}


def layer(score, width):
    """The layer with this score, built."""
    made, x = MAKE[score](width), tf.ones((1, 2, width))
    made(x, x, x, return_attention_weights=False)
    return made


def variants(case, arrays):
    """Forward, or forward with the gradients of q, k, v and the parameters."""
    q, k, v, g = (tf.constant(arrays[name]) for name in "qkvg")
    attend = layer(case["score"], q.shape[-1])

    @tf.function(autograph=False)
    def run(q, k, v, g):
        if case["task"] == "forward":
            return (attend(q, k, v, return_attention_weights=False)[0],)
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            output, _ = attend(q, k, v, return_attention_weights=False)
        wanted = (q, k, v, *attend.trainable_variables)
        # With the output: an unused forward pass would be pruned from the graph.
        return output, *tape.gradient(output, wanted, output_gradients=g)

    return {case["score"]: lambda: run(q, k, v, g)}
