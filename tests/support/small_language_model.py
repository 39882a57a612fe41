"""A run of a language model small enough for unit tests, on texts that count in a circle."""

from tf_transformer.data import TextSource
from tf_transformer.training import LANGUAGE_MODEL_PRESETS, LanguageModelRun

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


def write_circles(path, documents=200):
    """Write documents that name the numbers from one to seven in order, from any of them on."""
    lines = []
    for n in range(documents):
        words = [WORDS[(n + i) % 7] for i in range(4 + n % 11)]
        lines.append(f"{' '.join(words[:3])}\n{' '.join(words[3:])}\n\n")
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def small_language_model(folder, **changes):
    """Return a run on such documents, in `folder`/run."""
    preset = LANGUAGE_MODEL_PRESETS["tiny"].with_changes(
        {"vocab_size": 300, "lengths": (8, 16), "tokens_per_batch": 256, "rate": 0.0, **changes}
    )
    source = TextSource(files=(write_circles(folder / "circles.txt"),))
    return LanguageModelRun(folder / "run", source, preset)
