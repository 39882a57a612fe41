"""Sentence vectors of a MiniLM with this library, computed with and without padding."""

import tensorflow as tf

from benchmarks.bert.peers.batches import as_batches
from tf_transformer.models.bert import SentenceEncoder


def variants(case, arrays):
    """One graph for all shapes, as in a SavedModel."""
    return {
        "tf_transformer": _timed(case, arrays, unpad=True),
        "tf_transformer, padding too": _timed(case, arrays, unpad=False),
    }


def _timed(case, arrays, unpad):
    model = SentenceEncoder.from_pretrained(case["model"], unpad=unpad, dtype=case["dtype"])
    batches = as_batches(arrays, tf.constant)
    shape = tf.TensorSpec((None, None), tf.int32)

    @tf.function(input_signature=[shape, shape], autograph=False)
    def encode(ids, mask):
        return model({"input_ids": ids, "attention_mask": mask})

    return lambda: [encode(*batch).numpy() for batch in batches]
