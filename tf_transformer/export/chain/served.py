"""The exported models of a stage, as functions of texts."""

import tensorflow as tf

from tf_transformer import litert
from tf_transformer.export.loading import load_saved_model

SAVED, LITE = "saved_model", "litert"


def served(stage, method):
    """Load what a stage exported."""
    if (stage / LITE).is_dir():
        lite = litert.load(stage / LITE)
        return lite.translate if method == "translate" else lambda texts: lite.classify(texts)[0]
    saved = load_saved_model(stage / SAVED)

    def call(texts):
        answer = getattr(saved, method)(tf.constant(texts))
        strings = answer if method == "translate" else answer["label"]
        return [string.decode("utf-8") for string in strings.numpy()]

    return call


def in_batches(call, texts, rows=32):
    """Call a function with a few texts at a time."""
    starts = range(0, len(texts), rows)
    return [answer for start in starts for answer in call(texts[start : start + rows])]
