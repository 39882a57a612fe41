"""A pretraining run small enough for unit tests, on documents of one topic each."""

import numpy as np

from tf_transformer.data import TextSource
from tf_transformer.training import PRETRAINING_PRESETS, PretrainingRun

TOPICS, WORDS = 8, 6


def write_topics(path, documents=500, seed=0):
    """Write documents of four sentences of three words; each topic has its own words."""
    rng = np.random.default_rng(seed)
    text = ""
    for _ in range(documents):
        topic = rng.integers(TOPICS)
        for _ in range(4):
            words = rng.integers(WORDS, size=3)
            text += " ".join(f"{'abcdefgh'[topic]}{'klmnop'[word]}" for word in words) + "\n"
        text += "\n"
    path.write_text(text, encoding="utf-8")
    return str(path)


def small_pretraining(folder, start=None, vocabulary=None, **changes):
    """Return a run on such documents, in `folder`/run."""
    preset = PRETRAINING_PRESETS["tiny"].with_changes(
        {"vocab_size": 100, "lengths": (16,), "tokens_per_batch": 720, **changes}
    )
    file = write_topics(folder / "topics.txt")
    return PretrainingRun(folder / "run", TextSource(files=(file,)), preset, vocabulary, start)
