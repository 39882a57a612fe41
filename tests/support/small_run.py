"""A training run small enough for unit tests."""

from tf_transformer.data import PairSource, load_corpus
from tf_transformer.training import PRESETS, TrainingRun


def small_run(folder, epochs=2, pairs=300):
    """Return a run on a few sentences of the included corpus, in `folder`/run."""
    lines = [f"{source}\t{target}\n" for source, target in load_corpus("en-fr")[:pairs]]
    file = folder / "pairs.tsv"
    file.write_text("".join(lines), encoding="utf-8")
    preset = PRESETS["tiny"].with_changes(
        {"epochs": epochs, "vocab_size": 300, "tokens_per_batch": 512, "lengths": (16, 32)}
    )
    return TrainingRun(folder / "run", PairSource(tsv=str(file)), preset)
