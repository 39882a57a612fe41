"""The exported models of a stage, as functions of texts."""

import tensorflow as tf

from tf_transformer import litert
from tf_transformer.export.loading import load_saved_model

SAVED, LITE = "saved_model", "litert"


def served(stage, method):
    """Load what a stage exported.

    Args:
        stage: Path of a folder with `saved_model` or `litert` in it.
        method: "classify" or "translate".

    Returns:
        function, list of str -> list of str, classes or translations.

    Raises:
        ValueError: If the model is damaged.

    Example:
        >>> from tf_transformer.export import shipped_model
        >>> from pathlib import Path
        >>> Path("stage").mkdir()
        >>> Path("stage/saved_model").symlink_to(shipped_model("en-zh").resolve())
        >>> len(served(Path("stage"), "translate")(["Hello!", "Thank you."]))
        2
    """
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
    """Call a function with a few texts at a time.

    Args:
        call: function, list -> list.
        texts: list.
        rows: int, texts of a call.

    Returns:
        list of the results.

    Example:
        >>> in_batches(lambda texts: [text.upper() for text in texts], ["a", "b", "c"], rows=2)
        ['A', 'B', 'C']
    """
    starts = range(0, len(texts), rows)
    return [answer for start in starts for answer in call(texts[start : start + rows])]
