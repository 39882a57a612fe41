"""A trained Transformer of this library in float32 and in int8, as plain graphs."""

import tensorflow as tf

from benchmarks.decoding.peers.batches import batches
from benchmarks.decoding.peers.ours import new_model, translating
from tf_transformer.compression import quantized


def variants(case, arrays):
    """Greedy decoding or beam search."""
    model = new_model(case, arrays)
    source, target = (tf.constant(arrays[name]) for name in ("seen_source", "seen_target"))
    models = {
        "": model,
        ", int8": quantized(model, [((source, target), target)]),
        ", int8, dynamic": quantized(model),
    }
    sources = [tf.constant(batch) for batch in batches(case, arrays)]
    return {
        f"tf_transformer{ending}": translating(model, case, sources)
        for ending, model in models.items()
    }
