"""A trained Transformer of this library in float32 and in int8, as plain graphs."""

import tensorflow as tf

from benchmarks.decoding.peers.batches import batches
from benchmarks.decoding.peers.ours import new_model, translating
from tf_transformer.compression import quantized


def variants(case, arrays):
    """Greedy decoding or beam search."""
    sources = [tf.constant(batch) for batch in batches(case, arrays)]
    return {name: translating(model, case, sources) for name, model in models(case, arrays).items()}


def models(case, arrays):
    """The same weights in each form."""
    model = new_model(case, arrays)
    source, target = (tf.constant(arrays[name]) for name in ("seen_source", "seen_target"))
    return {
        "tf_transformer": model,
        "tf_transformer, int8": quantized(model, [((source, target), target)]),
        "tf_transformer, int8, dynamic": quantized(model),
    }
