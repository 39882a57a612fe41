"""The stack of keras-hub's `BertBackbone`, in a graph and with XLA."""

import keras_hub

from benchmarks.models.peers.stack_ours import timed
from benchmarks.models.peers.stack_weights import DFF, HEADS, LAYERS, WIDTH, stack_weights


def variants(case, arrays):
    """The backbone's layers without its embeddings, called as it calls them."""
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=2,
        num_layers=LAYERS,
        num_heads=HEADS,
        hidden_dim=WIDTH,
        intermediate_dim=DFF,
        dtype=case["dtype"],
    )
    for layer, weights in zip(backbone.transformer_layers, stack_weights(), strict=True):
        attention = layer._self_attention_layer
        homes = {
            "query": attention._query_dense,
            "key": attention._key_dense,
            "value": attention._value_dense,
            "output": attention._output_dense,
            "hidden": layer._feedforward_intermediate_dense,
            "narrow": layer._feedforward_output_dense,
            "norm1": layer._self_attention_layer_norm,
            "norm2": layer._feedforward_layer_norm,
        }
        for name, home in homes.items():
            arrays_of = [
                array.reshape(old.shape)
                for array, old in zip(weights[name], home.weights, strict=True)
            ]
            home.set_weights(arrays_of)

    def stack(x):
        for layer in backbone.transformer_layers:
            x = layer(x, training=False)
        return x

    return {
        "keras-hub": timed(stack, case, arrays),
        "keras-hub, XLA": timed(stack, case, arrays, jit_compile=True),
    }
