"""A BERT-base encoder stack of this library's `EncoderLayer`."""

import tensorflow as tf

from benchmarks.models.peers.stack_weights import DFF, EPSILON, HEADS, WIDTH, stack_weights
from tf_transformer import Architecture, EncoderLayer, FeedForward, LayerNorm
from tf_transformer.export import freeze


def variants(case, arrays):
    """A plain graph, with its weights as variables and as constants, and the stack with XLA."""
    like_bert = Architecture(norm=LayerNorm(EPSILON), feed_forward=FeedForward("gelu"))
    layers = []
    for weights in stack_weights():
        layer = EncoderLayer(WIDTH, HEADS, DFF, architecture=like_bert, dtype=case["dtype"])
        layer.build((None, None, WIDTH))
        hidden, narrow = layer.ffn.layers
        homes = {"query": layer.mha.wq, "key": layer.mha.wk, "value": layer.mha.wv}
        homes |= {"output": layer.mha.dense, "hidden": hidden, "narrow": narrow}
        homes |= {"norm1": layer.layernorm1, "norm2": layer.layernorm2}
        for name, home in homes.items():
            home.set_weights(weights[name])
        layers.append(layer)

    def stack(x):
        for layer in layers:
            x = layer(x, False)
        return x

    return {
        "tf_transformer": timed(stack, case, arrays),
        "tf_transformer, frozen": timed(stack, case, arrays, frozen=True),
        "tf_transformer, XLA": timed(stack, case, arrays, jit_compile=True),
    }


def timed(stack, case, arrays, frozen=False, **options):
    """A function that runs the stack on the case's input."""
    x = tf.cast(tf.constant(arrays["x"]), case["dtype"])
    run = tf.function(stack, autograph=False, **options)
    if frozen:
        run = freeze(stack, tf.TensorSpec.from_tensor(x))
    return lambda: [tf.cast(run(x), tf.float32).numpy()]
