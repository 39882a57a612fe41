"""Cost against size, with fitted exponents, as a Matplotlib figure."""

import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.visualize.figure_style import figure_style


def complexity_figure(sizes, costs, *, xlabel="length", ylabel="seconds", dark=False):
    """Draw how costs grow with a size on logarithmic scales, and the exponent of each.

    The exponent is the slope of the line that fits the logarithms of the larger half of the sizes,
    where what a call costs in any case counts less.

    Args:
        sizes: at least two increasing numbers above 0.
        costs: dict, label to one cost for each size: numbers above 0, in any unit.
        xlabel, ylabel: str.
        dark: bool, a dark page instead of a white one.

    Returns:
        `matplotlib.figure.Figure`; the legend has the exponents.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the sizes do not increase, a line has another number of costs, or a cost is
            not above 0.

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
            raise ArgumentError(
                "costs",
                f"{len(sizes)} numbers above 0, one for each size",
                f"{line.tolist()} for {label!r}",
            )
    larger = slice(min(len(sizes) // 2, len(sizes) - 2), None)
    with figure_style(dark, [*lines, xlabel, ylabel]) as Figure:
        figure = Figure(figsize=(6, 3.8), layout="constrained")
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
