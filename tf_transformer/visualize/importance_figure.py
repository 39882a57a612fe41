"""How important each head is, as a Matplotlib figure.

Axes: L layers, N heads.
"""

import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.visualize.figure_style import figure_style


def importance_figure(importance, *, title="importance of heads", dark=False):
    """Draw a grid of layers and heads for each stack, each square with its number.

    Args:
        importance: dict, stack -> L rows of N numbers, as `compression.head_importance` returns, or
            for example what the loss rises by when a head is masked. Rows of a pruned model may
            differ in length.
        title: str.
        dark: bool, a dark page instead of a white one.

    Returns:
        `matplotlib.figure.Figure`, the first layer of each stack at the bottom; one scale of
        colours for all.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If a stack has no head, or a number is not finite.

    Example:
        >>> figure = importance_figure({"encoder": [[0.1, 0.9], [0.4]], "cross": [[0.2]]})
        >>> [[text.get_text() for text in axis.texts] for axis in figure.axes[:2]]
        [['0.1', '0.9', '0.4'], ['0.2']]
    """
    grids = {stack: _grid(stack, rows) for stack, rows in importance.items()}
    if not grids:
        raise ArgumentError("importance", "at least one stack", "an empty dict")
    least = min(np.nanmin(grid) for grid in grids.values())
    most = max(np.nanmax(grid) for grid in grids.values())
    with figure_style(dark, [title, *grids]) as Figure:
        widths = [grid.shape[1] for grid in grids.values()]
        height = 1.6 + 0.45 * max(len(grid) for grid in grids.values())
        figure = Figure(figsize=(2 + 0.6 * sum(widths), height), layout="constrained")
        axes = figure.subplots(1, len(grids), squeeze=False, width_ratios=widths)[0]
        for axis, (stack, grid) in zip(axes, grids.items(), strict=True):
            image = axis.imshow(grid, vmin=least, vmax=most, origin="lower", aspect="auto")
            for (layer, head), value in np.ndenumerate(grid):
                if not np.isnan(value):
                    bright = value > (least + most) / 2
                    style = {
                        "ha": "center",
                        "va": "center",
                        "color": "black" if bright else "white",
                    }
                    axis.text(head, layer, f"{value:.2g}", **style)
            axis.set_xticks(range(grid.shape[1]), range(1, grid.shape[1] + 1))
            axis.set_yticks(range(len(grid)), range(1, len(grid) + 1))
            axis.set(title=stack, xlabel="head", ylabel="layer")
        figure.suptitle(title)
        figure.colorbar(image, ax=list(axes))
        return figure


def _grid(stack, rows):
    """The rows as a matrix, NaN where a row is shorter."""
    rows = [np.asarray(row, np.float64) for row in rows]
    good = [row.ndim == 1 and np.isfinite(row).all() for row in rows]
    if not rows or not all(good) or not max(map(len, rows)):
        raise ArgumentError(
            "importance", "finite numbers, a row for each layer", f"{rows} for {stack!r}"
        )
    grid = np.full((len(rows), max(map(len, rows))), np.nan)
    for layer, row in enumerate(rows):
        grid[layer, : len(row)] = row
    return grid
