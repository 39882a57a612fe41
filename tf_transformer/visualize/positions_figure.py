"""Position encodings as a Matplotlib figure.

Axes: T positions, D width.
"""

import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.visualize.figure_style import figure_style


def positions_figure(codes, *, dark=False):
    """Draw the codes of all positions, and the dot products of some with all others.

    Args:
        codes: array or tensor (T, D), such as the table of learned positions or
            `functional.positions.sinusoidal_positions(T, D)`.
        dark: bool, a dark page instead of a white one.

    Returns:
        `matplotlib.figure.Figure` with the codes on the left and the products on the right.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If `codes` is not a matrix of numbers.

    Example:
        >>> left, right, _ = positions_figure(np.eye(5)).axes  # the last is the colour bar
        >>> right.lines[0].get_ydata().tolist()  # position 1 with all others
        [0.0, 1.0, 0.0, 0.0, 0.0]
    """
    codes = np.asarray(codes, np.float64)
    if codes.ndim != 2 or not codes.size:
        raise ArgumentError("codes", "(positions, width)", f"shape {codes.shape}")
    if not np.isfinite(codes).all():
        raise ArgumentError("codes", "finite numbers", "NaN or infinity")
    largest = np.abs(codes).max() or 1.0
    with figure_style(dark) as Figure:
        figure = Figure(figsize=(9, 3.4), layout="constrained")
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
