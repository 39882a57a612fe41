"""Gradient norms by depth, as a Matplotlib figure."""

import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.visualize.figure_style import figure_style


def gradients_figure(norms, *, dark=False):
    """Draw the gradient norm of each layer, one line for each model, on a logarithmic scale.

    Args:
        norms: dict, label to the norms of the layers, the first layer first; numbers above 0, or 0
            where nothing arrives, which is left out.
        dark: bool, a dark page instead of a white one.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If there is no line, or a norm is negative or not finite.

    Example:
        >>> axis = gradients_figure({"post-norm": [0.1, 1.0], "pre-norm": [0.9, 1.1]}).axes[0]
        >>> axis.get_yscale(), len(axis.lines)
        ('log', 2)
    """
    lines = {label: np.asarray(line, np.float64) for label, line in norms.items()}
    if not lines:
        raise ArgumentError("norms", "at least one line", "an empty dict")
    for label, line in lines.items():
        if line.ndim != 1 or not line.size or not np.isfinite(line).all() or (line < 0).any():
            raise ArgumentError(
                "norms",
                "norms of layers, finite and not negative",
                f"{line.tolist()} for {label!r}",
            )
    with figure_style(dark, list(lines)) as Figure:
        figure = Figure(figsize=(6, 3.4), layout="constrained")
        axis = figure.subplots()
        for label, line in lines.items():
            layers = np.arange(1, len(line) + 1)
            axis.plot(layers[line > 0], line[line > 0], label=label)
        axis.set(yscale="log", xlabel="layer", ylabel="norm of the gradient")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.legend()
        return figure
