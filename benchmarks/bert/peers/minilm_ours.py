"""Sentence vectors of a MiniLM with this library: without padding, with it, and by XLA."""

import tensorflow as tf

from benchmarks.bert.peers.batches import as_batches
from tf_transformer.export import compile_for
from tf_transformer.models.bert import SentenceEncoder

SHAPE = tf.TensorSpec((None, None), tf.int32)


def variants(case, arrays):
    """One graph for all shapes, as in a SavedModel; single sentences also in XLA's buckets."""
    functions = {
        "tf_transformer": _timed(case, arrays, unpad=True),
        "tf_transformer, padding too": _timed(case, arrays, unpad=False),
    }
    if arrays["ids0"].shape[0] == 1:
        functions["tf_transformer, XLA"] = _timed(case, arrays, unpad=False, buckets=(8, 16, 32))
    return functions


def _timed(case, arrays, unpad, buckets=()):
    model = SentenceEncoder.from_pretrained(case["model"], unpad=unpad, dtype=case["dtype"])
    batches = as_batches(arrays, tf.constant)

    def encode(pair):
        ids, mask = pair
        return model({"input_ids": ids, "attention_mask": mask}, training=False)

    if buckets:
        encode = compile_for(encode, (SHAPE, SHAPE), rows=[1], lengths=buckets)
    else:
        encode = tf.function(encode, input_signature=[(SHAPE, SHAPE)], autograph=False)
    return lambda: [encode(batch).numpy() for batch in batches]
