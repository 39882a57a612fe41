"""Figures: complexity, gradients, heads, importance, positions, training curves.

Axes: N heads, T queries (rows) or positions, S keys (columns), L layers, D width.
"""

import contextlib
import csv
import math
import warnings
from pathlib import Path

import numpy as np

from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage, check
from tf_transformer.visualize.attention import check_labels

# Okabe and Ito's colors, which can be distinguished with any color blindness, without black and
# yellow, which is too pale on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = "os^Dv*"
MAP = "cividis"  # perceptually uniform, also in gray
# Fonts of Windows, macOS and Linux packages.
_CHINESE = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN"),
    *("Microsoft YaHei", "PingFang SC", "Hiragino Sans GB", "WenQuanYi Micro Hei"),
    *("WenQuanYi Zen Hei", "SimHei", "Arial Unicode MS"),
)
_DARK = {
    **dict.fromkeys(
        ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor"), "#16181d"
    ),
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#e6e6e6"
    ),
    "grid.color": "#5a5f6b",
}


def chinese_font():
    """Find an installed font that shows Chinese.

    Returns a str, the family that the figures use after Matplotlib's font, or None if there is
    none. Raises an ImportError if Matplotlib is not installed.

    Example:
        >>> chinese_font() is None or isinstance(chinese_font(), str)
        True
    """
    _need_matplotlib()
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return next((family for family in _CHINESE if family in installed), None)


@contextlib.contextmanager
def new_figure(width, height, labels=(), dark=False):
    """Yield a figure, with the colors and fonts of this package for what a `with` block draws."""
    _need_matplotlib()
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    font = chinese_font()
    if font is None and any(ord(c) > 0x2E7F for label in labels for c in str(label)):
        warnings.warn(
            "No installed font shows Chinese, so its characters become boxes. Install one, for "
            "example the package fonts-noto-cjk, and restart Python.",
            stacklevel=3,
        )
    lines = cycler(color=COLORS) + cycler(marker=list(MARKERS))
    settings = {
        "font.family": ["sans-serif", *([font] if font else [])],
        "axes.prop_cycle": lines,
        "axes.unicode_minus": False,  # several Chinese fonts lack the Unicode minus sign
        "image.cmap": MAP,
        **(_DARK if dark else {}),
    }
    with rc_context(settings):
        yield Figure(figsize=(width, height), layout="constrained")


def _need_matplotlib(what="figures", extra="notebooks"):
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingPackage(f'{what} need Matplotlib: pip install -e ".[{extra}]"') from error


def complexity_figure(sizes, costs, *, xlabel="length", ylabel="seconds", dark=False):
    """Draw how costs grow with a size on logarithmic scales, with the exponent of each.

    The exponent is fitted to the larger half of the sizes, where fixed costs matter less. Returns a
    `matplotlib.figure.Figure` with the exponents in its legend.

    Args:
        sizes: at least two increasing numbers above 0.
        costs: dict, label -> one cost for each size: numbers above 0, in any unit.
        xlabel, ylabel: str.
        dark: bool, whether the background is dark instead of white.

    Raises:
        ImportError: If Matplotlib is not installed, as for all figures.
        ValueError: If the sizes do not increase, the number of costs differs from the number of
            sizes, or a cost is not above 0.

    Example:
        >>> axis = complexity_figure([1, 2, 4], {"attention": [3, 12, 48]}).axes[0]
        >>> axis.lines[0].get_label()
        'attention: exponent 2.00'
    """
    sizes = np.asarray(sizes, np.float64)
    if sizes.ndim != 1 or len(sizes) < 2 or sizes[0] <= 0 or not (np.diff(sizes) > 0).all():
        raise ArgumentError("sizes", "two or more increasing numbers above 0", sizes.tolist())
    lines = {label: np.asarray(line, np.float64) for label, line in costs.items()}
    for label, line in lines.items():
        if line.shape != sizes.shape or not (np.isfinite(line) & (line > 0)).all():
            expected = f"{len(sizes)} numbers above 0, one for each size"
            raise ArgumentError("costs", expected, f"{line.tolist()} for {label!r}")
    larger = slice(min(len(sizes) // 2, len(sizes) - 2), None)
    with new_figure(6, 3.8, [*lines, xlabel, ylabel], dark) as figure:
        axis = figure.subplots()
        for label, line in lines.items():
            exponent = np.polyfit(np.log(sizes[larger]), np.log(line[larger]), 1)[0]
            axis.plot(sizes, line, label=f"{label}: exponent {exponent:.2f}")
        axis.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
        axis.set_xticks(sizes, [f"{size:,g}" for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend()
        return figure


def gradients_figure(norms, *, dark=False):
    """Draw the gradient norm of each layer, one line per model, on a logarithmic scale.

    Returns a `matplotlib.figure.Figure`. Raises a ValueError if there is no line, or a norm is
    negative or not finite.

    Args:
        norms: dict, label -> the norms of the layers; layers with norm 0 are left out.
        dark: bool, whether the background is dark instead of white.

    Example:
        >>> axis = gradients_figure({"post-norm": [0.1, 1.0], "pre-norm": [0.9, 1.1]}).axes[0]
        >>> axis.get_yscale(), len(axis.lines)
        ('log', 2)
    """
    lines = {label: np.asarray(line, np.float64) for label, line in norms.items()}
    check(lines, "norms", "at least one line", "an empty dict")
    for label, line in lines.items():
        if line.ndim != 1 or not line.size or not np.isfinite(line).all() or (line < 0).any():
            expected = "norms of layers, finite and not negative"
            raise ArgumentError("norms", expected, f"{line.tolist()} for {label!r}")
    with new_figure(6, 3.4, lines, dark) as figure:
        axis = figure.subplots()
        for label, line in lines.items():
            layers = np.arange(1, len(line) + 1)
            axis.plot(layers[line > 0], line[line > 0], label=label)
        axis.set(yscale="log", xlabel="layer", ylabel="norm of the gradient")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.legend()
        return figure


def heads_figure(weights, queries, keys, titles=None, *, dark=False):
    """Draw one matrix per head, in up to four columns, with one color scale for all.

    `attention_svg` draws the same for browsers; this figure is for papers. Returns a
    `matplotlib.figure.Figure`: a notebook shows it, `savefig` writes it.

    Args:
        weights, queries, keys, titles: see `attention_svg`, also for the errors.
        dark: bool, whether the background is dark instead of white.

    Example:
        >>> figure = heads_figure([[0.25, 0.75]], ["station"], ["the", "station"])
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['the', 'station']
    """
    weights, titles = check_labels(weights, queries, keys, titles)
    columns = max(1, min(4, len(weights)))
    rows = max(1, math.ceil(len(weights) / columns))
    width = columns * max(1.6, 0.6 + 0.28 * len(keys)) + 1
    height = rows * max(1.6, 0.9 + 0.28 * len(queries))
    with new_figure(width, height, (*queries, *keys, *titles), dark) as figure:
        axes = np.ravel(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False))
        for unused in axes[len(weights) :]:
            unused.set_visible(False)
        image = None
        for axis, head, title in zip(axes, weights, titles, strict=False):
            image = axis.imshow(head, vmin=0, vmax=1, aspect="auto")
            axis.set_title(title)
            axis.set_xticks(range(len(keys)), keys, rotation=90)
            axis.set_yticks(range(len(queries)), queries)
            axis.tick_params(labelbottom=True)
        if image is not None:
            figure.colorbar(image, ax=list(axes), label="weight")
        return figure


def importance_figure(importance, *, title="importance of heads", dark=False):
    """Draw a grid of layers and heads for each stack, with the number in each square.

    Returns a `matplotlib.figure.Figure`, with the first layer of each stack at the bottom. Raises a
    ValueError if a stack has no head, or a number is not finite.

    Args:
        importance: dict, stack -> L rows of N numbers, as returned by
            `compression.head_importance`. Rows of a pruned model may differ in length.
        title: str.
        dark: bool, whether the background is dark instead of white.

    Example:
        >>> figure = importance_figure({"encoder": [[0.1, 0.9], [0.4]], "cross": [[0.2]]})
        >>> [[text.get_text() for text in axis.texts] for axis in figure.axes[:2]]
        [['0.1', '0.9', '0.4'], ['0.2']]
    """
    grids = {stack: _grid(stack, rows) for stack, rows in importance.items()}
    check(grids, "importance", "at least one stack", "an empty dict")
    least = min(np.nanmin(grid) for grid in grids.values())
    most = max(np.nanmax(grid) for grid in grids.values())
    widths = [grid.shape[1] for grid in grids.values()]
    height = 1.6 + 0.45 * max(len(grid) for grid in grids.values())
    with new_figure(2 + 0.6 * sum(widths), height, [title, *grids], dark) as figure:
        axes = figure.subplots(1, len(grids), squeeze=False, width_ratios=widths)[0]
        for axis, (stack, grid) in zip(axes, grids.items(), strict=True):
            image = axis.imshow(grid, vmin=least, vmax=most, origin="lower", aspect="auto")
            for (layer, head), value in np.ndenumerate(grid):
                if not np.isnan(value):
                    color = "black" if value > (least + most) / 2 else "white"
                    axis.text(head, layer, f"{value:.2g}", ha="center", va="center", color=color)
            axis.set_xticks(range(grid.shape[1]), range(1, grid.shape[1] + 1))
            axis.set_yticks(range(len(grid)), range(1, len(grid) + 1))
            axis.set(title=stack, xlabel="head", ylabel="layer")
        figure.suptitle(title)
        figure.colorbar(image, ax=list(axes))
        return figure


def _grid(stack, rows):
    """Return the rows as a matrix, padded with NaN."""
    rows = [np.asarray(row, np.float64) for row in rows]
    good = [row.ndim == 1 and np.isfinite(row).all() for row in rows]
    if not rows or not all(good) or not max(map(len, rows)):
        expected = "finite numbers, a row for each layer"
        raise ArgumentError("importance", expected, f"{rows} for {stack!r}")
    grid = np.full((len(rows), max(map(len, rows))), np.nan)
    for layer, row in enumerate(rows):
        grid[layer, : len(row)] = row
    return grid


def positions_figure(codes, *, dark=False):
    """Draw the codes of all positions, and the dot products of some positions with all.

    Returns a `matplotlib.figure.Figure`. Raises a ValueError if `codes` is not a matrix of numbers.

    Args:
        codes: array or tensor (T, D), such as `functional.positions.sinusoidal_positions(T, D)`.
        dark: bool, whether the background is dark instead of white.

    Example:
        >>> left, right, _ = positions_figure(np.eye(5)).axes  # the last is the color bar
        >>> right.lines[0].get_ydata().tolist()  # position 1 with all others
        [0.0, 1.0, 0.0, 0.0, 0.0]
    """
    codes = np.asarray(codes, np.float64)
    check(codes.ndim == 2 and codes.size, "codes", "(positions, width)", f"shape {codes.shape}")
    check(np.isfinite(codes).all(), "codes", "finite numbers", "NaN or infinity")
    largest = np.abs(codes).max() or 1.0
    with new_figure(9, 3.4, dark=dark) as figure:
        left, right = figure.subplots(1, 2)
        image = left.imshow(codes, vmin=-largest, vmax=largest, aspect="auto")
        left.set(title="codes", xlabel="dimension", ylabel="position")
        figure.colorbar(image, ax=left)
        for position in sorted({len(codes) * part // 4 for part in (1, 2, 3)}):
            right.plot(codes @ codes[position], marker="", label=f"position {position}")
        right.set(title="dot product with each position", xlabel="position")
        right.grid(alpha=0.3)
        right.legend()
        return figure


# Titles for the outputs of `BertForPreTraining`.
_TITLES = {"prediction_logits": "masked words", "seq_relationship_logits": "next sentence"}


def training_curves(history_file, picture_file):
    """Plot every loss and metric over the epochs, for training and validation.

    Args:
        history_file: str or Path of a run's `history.csv`; column `x` is plotted if `val_x` exists.
        picture_file: str or Path to write to; its suffix, such as `.svg`, determines the format.

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
    _need_matplotlib("curves", "train")
    from matplotlib.figure import Figure

    history = _read(Path(history_file))
    names = [name for name in history if f"val_{name}" in history]
    if not names:
        expected = f"columns like loss and val_loss in {history_file}"
        raise ArgumentError("history_file", expected, ", ".join(history))
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
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
    if Path(picture_file).is_symlink():  # in a run's folder, it may point elsewhere
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
        expected = f"a column epoch and a row per finished epoch in {path}"
        remedy = "Train for at least one epoch."
        raise ArgumentError("history_file", expected, f"{len(rows)} rows", remedy)
    try:
        return {name: [float(row[name]) for row in rows] for name in rows[0]}
    except (TypeError, ValueError) as error:
        raise ArgumentError("history_file", f"numbers in {path}", error) from error
