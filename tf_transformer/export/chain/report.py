"""The table and the plot of a compressed model."""

import statistics

from tf_transformer.data.replacing import replacing
from tf_transformer.errors import MissingPackage

PLOT = "results.png"


def write_report(results, folder, title, score_name):
    """Write `README.md` with a table of all stages, and `results.png`."""
    lines = [
        f"# {title}",
        "",
        f"| | {score_name} | weights | MiB | 1 text, ms | 32 texts, ms | peak memory, MiB |",
        "|---" * 7 + "|",
    ]
    for stage in results:
        times = (
            f"{1000 * statistics.median(stage['seconds'][rows]):.2f} "
            f"({stage['relative_time'][rows]:.2f})"
            for rows in ("1", "32")
        )
        memory = stage["peak_memory"]
        memory = "–" if memory is None else f"{memory / 2**20:,.0f}"
        lines.append(
            f"| {stage['name']} | {stage['score']:.1f} | {stage['weights']:,} | "
            f"{stage['bytes'] / 2**20:.1f} | {' | '.join(times)} | {memory} |"
        )
    lines += [
        "",
        "All in one run. Times: medians, in parentheses relative to the first line, measured in "
        "turn. Memory: of a process of its own that loads the model and runs 32 texts.",
        "",
        f"![Score against time]({PLOT})",
        "",
    ]
    _draw(results, folder / PLOT, score_name)
    with replacing(folder / "README.md") as beside:
        beside.write_text("\n".join(lines), "utf-8")


def import_figure():
    """Import what draws the plot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage('the plot needs Matplotlib: pip install -e ".[train]"') from error
    return Figure


def _draw(results, path, score_name):
    """Score against time for one text; the area of a disc is the size of the files."""
    figure = import_figure()(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    times = [stage["relative_time"]["1"] for stage in results]
    scores = [stage["score"] for stage in results]
    largest = max(stage["bytes"] for stage in results)
    axes.plot(times, scores, color="0.7", zorder=1)
    axes.scatter(times, scores, [900 * stage["bytes"] / largest for stage in results], alpha=0.6)
    for stage, time, score in zip(results, times, scores, strict=True):
        text = f"{stage['name']}\n{stage['bytes'] / 2**20:.0f} MiB"
        axes.annotate(
            text, (time, score), (0, 18), textcoords="offset points", fontsize=8, ha="center"
        )
    axes.margins(0.15, 0.25)
    axes.set_xlabel("time for one text, relative to the original")
    axes.set_ylabel(score_name)
    with replacing(path) as beside:
        figure.savefig(beside)
