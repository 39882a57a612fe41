"""Fewer and fewer heads of a model, and smaller models next to each other: sizes and times."""

import statistics
import tempfile
import time
from pathlib import Path

MEASURES = ("gradient", "ablation", "confidence")
SHARES = tuple(n / 12 for n in range(12))


def head_curve(model, seen, score):
    """The score with a share of the heads removed, without training: measure -> list."""
    from tf_transformer.compression import head_importance, least_important, prune_heads

    curve = {}
    for measure in MEASURES:
        importance = head_importance(model, seen, by=measure)
        counts = [len(layer) for layers in importance.values() for layer in layers]
        most = 1 - len(counts) / sum(counts)  # each layer keeps a head
        curve[measure] = [
            score(prune_heads(model, least_important(importance, share)) if share else model)
            for share in SHARES
            if share <= most
        ]
        print(measure, [f"{value:.1f}" for value in curve[measure]], flush=True)
    return curve


def curve_table(curve):
    """Markdown: one column for each share."""
    shares = [f"{share:.0%}" for share, *_ in zip(SHARES, *curve.values(), strict=False)]
    lines = [f"| heads removed | {' | '.join(shares)} |", "|---" * (len(shares) + 1) + "|"]
    for measure, values in curve.items():
        lines.append(f"| by {measure} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    return "\n".join(lines)


def draw(curve, score, path):
    """The score, such as "accuracy, %", against the share of heads removed."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for (measure, values), style in zip(curve.items(), ("o-", "x--", "+:"), strict=True):
        axes.plot(
            [100 * share for share in SHARES[: len(values)]], values, style, label=f"by {measure}"
        )
    axes.set_xlabel("heads removed, %")
    axes.set_ylabel(score)
    axes.legend()
    plt.savefig(path)


def table(models, columns, save, method, texts, rounds):
    """Markdown: scores, weights, size of the files, time for 1 and 32 texts.

    Args:
        models: dict, name -> model.
        columns: dict, title -> dict, name -> str; the scores.
        save: function of a model and a folder that exports it.
        method: str, that of the exported model which takes texts.
        texts: list of str.
        rounds: int, timed.
    """
    import tensorflow as tf

    loaded, sizes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for n, (name, model) in enumerate(models.items()):
            save(model, f"{folder}/{n}")
            files = Path(folder, str(n), "variables").iterdir()
            sizes[name] = sum(file.stat().st_size for file in files) / 2**20
            loaded[name] = tf.saved_model.load(f"{folder}/{n}")
        calls = {name: getattr(exported, method) for name, exported in loaded.items()}
        times = relative_times(calls, texts, rounds)
    titles = ["", *columns, "weights", "MiB", "time for 1 text", "for 32"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, model in models.items():
        row = [name, *(column[name] for column in columns.values()), f"{model.count_params():,}"]
        row += [f"{sizes[name]:.1f}", *(f"{times[rows][name]:.2f}" for rows in times)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def relative_times(calls, texts, rounds):
    """Time batches of 1 and 32 texts in turn: {rows: {name: time relative to the first}}."""
    import tensorflow as tf

    times = {}
    for rows in (1, 32):
        starts = range(0, max(rows * 2, 32), rows)
        batches = [tf.constant(texts[start : start + rows]) for start in starts]
        seconds = {name: [] for name in calls}
        for turn in range(rounds + 2):
            for name, call in calls.items():
                start = time.perf_counter()
                for batch in batches:
                    call(batch)
                if turn > 1:
                    seconds[name].append((time.perf_counter() - start) / len(batches))
        first = seconds[next(iter(calls))]
        times[rows] = {
            name: statistics.median(a / b for a, b in zip(some, first, strict=True))
            for name, some in seconds.items()
        }
        print(f"{rows}: {1000 * statistics.median(first):.2f} ms", flush=True)
    return times
