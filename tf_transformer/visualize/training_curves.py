"""Training curves, plotted from the history of a run."""

import csv
from pathlib import Path

from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage

# Titles for the outputs of `BertForPreTraining`.
_TITLES = {"prediction_logits": "masked words", "seq_relationship_logits": "next sentence"}


def training_curves(history_file, picture_file):
    """Plot every loss and metric over the epochs, for training and validation.

    Args:
        history_file: str or Path of the `history.csv` of a run, with a column `epoch`; a column `x`
            is plotted if there is a column `val_x`.
        picture_file: str or Path to write to; the suffix, such as `.png` or `.svg`, determines the
            format.

    Raises:
        ImportError: If Matplotlib is not installed.
        FileNotFoundError: If the history does not exist.
        ValueError: If the history has no finished epoch, no such columns, or a value that is not a
            number.

    Example:
        >>> _ = Path("history.csv").write_text("epoch,loss,val_loss\\n0,3.5,3.1\\n1,2.5,2.6\\n")
        >>> training_curves("history.csv", "loss.png")
        >>> Path("loss.png").read_bytes()[1:4]
        b'PNG'
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingPackage('curves need Matplotlib: pip install -e ".[train]"') from error
    history = _read(Path(history_file))
    names = [name for name in history if f"val_{name}" in history]
    if not names:
        raise ArgumentError(
            "history_file", f"columns like loss and val_loss in {history_file}", ", ".join(history)
        )
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    # Not created with pyplot, so there is no window and no global state to clean up.
    figure = Figure(figsize=(4.5 * columns, 3.2 * rows), layout="constrained")
    epochs = [epoch + 1 for epoch in history["epoch"]]
    for n, name in enumerate(names, start=1):
        axes = figure.add_subplot(rows, columns, n)
        for column, label in ((name, "training"), (f"val_{name}", "validation")):
            axes.plot(epochs, history[column], marker=".", label=label)
        axes.set(title=_title(name), xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend()
    if Path(picture_file).is_symlink():  # in the folder of a run it may lead elsewhere
        Path(picture_file).unlink()
    figure.savefig(picture_file, dpi=120)


def _title(name):
    output, _, quantity = name.rpartition("_")
    return f"{_TITLES.get(output, output)}: {quantity}" if output else quantity


def _read(path):
    if not path.is_file():
        raise MissingFileError("history_file", "a history.csv", f"no file {path}")
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or "epoch" not in rows[0]:
        raise ArgumentError(
            "history_file",
            f"a column epoch and a row per finished epoch in {path}",
            f"{len(rows)} rows",
            "Train for at least one epoch.",
        )
    try:
        return {name: [float(row[name]) for row in rows] for name in rows[0]}
    except (TypeError, ValueError) as error:
        raise ArgumentError("history_file", f"numbers in {path}", error) from error
