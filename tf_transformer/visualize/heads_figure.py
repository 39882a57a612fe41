"""All heads of a layer, or one alignment, as a Matplotlib figure.

Axes: N heads, T queries (rows), S keys (columns).
"""

import math

import numpy as np

from tf_transformer.visualize.attention_svg import check_labels
from tf_transformer.visualize.figure_style import figure_style


def heads_figure(weights, queries, keys, titles=None, *, dark=False):
    """Draw one matrix per head, in up to four columns, with one scale of colours for all.

    `attention_svg` draws the same for browsers; this one goes into papers and other figures.

    Args:
        weights: array or tensor (N, T, S), or (T, S) for one, such as the alignment that the
            cross-attention of a translation gives; numbers in [0, 1].
        queries, keys: T and S strings, labels of the rows and the columns.
        titles: None for "head 1" and so on, or N strings.
        dark: bool, a dark page instead of a white one.

    Returns:
        `matplotlib.figure.Figure`; a notebook shows it, `savefig` writes it.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: See `attention_svg`.

    Example:
        >>> figure = heads_figure([[0.25, 0.75]], ["station"], ["the", "station"])
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['the', 'station']
    """
    weights, titles = check_labels(weights, queries, keys, titles)
    columns = max(1, min(4, len(weights)))
    rows = max(1, math.ceil(len(weights) / columns))
    width, height = 0.6 + 0.28 * len(keys), 0.9 + 0.28 * len(queries)
    with figure_style(dark, (*queries, *keys, *titles)) as Figure:
        figure = Figure(
            figsize=(columns * max(1.6, width) + 1, rows * max(1.6, height)), layout="constrained"
        )
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
