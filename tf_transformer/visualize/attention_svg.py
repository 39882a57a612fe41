"""Pictures of attention, between any tokens or in a translation.

Axes: N heads, T queries (rows), S keys (columns).
"""

from html import escape

import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.visualize.explorer import teacher_forcing_ids, token_labels

_CELL = 24  # pixels, side of a square
_LETTER = 8  # pixels, approximate width of a narrow letter; wide ones (CJK) count twice
_GAP = 24  # pixels between two heads
_SLANT = 0.7  # sine of the angle of the column labels
_TITLE = 28  # pixels, height of the title line


def attention_svg(weights, queries, keys, titles=None):
    """Draw one matrix per head, with a row for each query and a column for each key.

    Darker squares are larger weights; hovering over a square shows the number.

    Args:
        weights: array or tensor (N, T, S), or (T, S) for a single matrix; numbers in [0, 1].
        queries: T strings, the labels of the rows.
        keys: S strings, the labels of the columns.
        titles: None for "head 1" and so on, or N strings shown above the matrices.

    Returns:
        str, a complete SVG file. `IPython.display.SVG` shows it in a notebook.

    Raises:
        ValueError: If `weights` has a different rank or values outside [0, 1], or if the number of
            labels or titles does not match its axis.

    Example:
        >>> picture = attention_svg([[0.25, 0.75]], ["车站"], ["the", "station"])
        >>> picture.startswith("<svg"), picture.count("<rect")  # a background, two squares
        (True, 3)
    """
    weights, titles = check_labels(weights, queries, keys, titles)
    left = _GAP / 2 + max(map(_width, queries), default=0)
    slanted = max(map(_width, keys), default=0) * _SLANT
    top = _TITLE + slanted + _CELL / 2
    step = len(keys) * _CELL + _GAP
    # The label of the last column extends to the right.
    width = left + len(weights) * step + slanted
    height = top + len(queries) * _CELL + _GAP / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row, query in enumerate(queries):
        y = top + (row + 0.5) * _CELL
        parts.append(_text(query, left - 6, y, 'text-anchor="end" dominant-baseline="central"'))
    for n, (head, title) in enumerate(zip(weights, titles, strict=True)):
        x = left + n * step
        parts.append(_text(title, x, _TITLE / 2, 'fill="#555" dominant-baseline="central"'))
        parts.extend(_matrix(head, queries, keys, x, top))
    return "\n".join([*parts, "</svg>\n"])


def _matrix(weights, queries, keys, left, top):
    for column, key in enumerate(keys):
        x, y = left + (column + 0.6) * _CELL, top - 6
        yield _text(key, x, y, f'transform="rotate(-45 {x:.0f} {y:.0f})"')
    for (row, column), weight in np.ndenumerate(weights):
        yield (
            f'<rect x="{left + column * _CELL:.0f}" y="{top + row * _CELL:.0f}" '
            f'width="{_CELL - 1}" height="{_CELL - 1}" fill="#08519c" '
            f'fill-opacity="{max(weight, 0.04):.3f}">'
            f"<title>{_clean(queries[row])} to {_clean(keys[column])}: {weight:.3f}</title></rect>"
        )


def _text(text, x, y, attributes):
    return f'<text x="{x:.0f}" y="{y:.0f}" {attributes}>{_clean(text)}</text>'


def _clean(text):
    """Escape a text for XML, which forbids control characters even if they are escaped."""
    return escape("".join(c if c.isprintable() else f"<{ord(c):02X}>" for c in text))


def _width(text):
    return sum(_LETTER if ord(c) < 0x1100 else 2 * _LETTER for c in text) + 6


def check_labels(weights, queries, keys, titles):
    """Check the arguments of `attention_svg` and `heads_figure`."""
    weights = np.asarray(weights, np.float64)
    if weights.ndim == 2:
        weights = weights[np.newaxis]  # (1, T, S)
        titles = [""] if titles is None else titles
    if weights.ndim != 3:
        expected = "(heads, queries, keys) or (queries, keys)"
        remedy = "Select one sentence of a batch: weights[0]."
        raise ArgumentError("weights", expected, f"shape {weights.shape}", remedy)
    if weights.size and not (weights.min() >= 0 and weights.max() <= 1.0001):  # NaN fails too
        got = f"{weights.min():.3g} to {weights.max():.3g}"
        remedy = "Pass the output of the softmax, not the scores."
        raise ArgumentError("weights", "numbers in [0, 1]", got, remedy)
    if titles is None:
        titles = [f"head {n}" for n in range(1, len(weights) + 1)]
    axes = {"titles": titles, "queries": queries, "keys": keys}
    for axis, (name, labels) in enumerate(axes.items()):
        if len(labels) != weights.shape[axis]:
            expected = f"{weights.shape[axis]} strings, one for each step of axis {axis} of weights"
            raise ArgumentError(name, f"{expected} {weights.shape}", len(labels))
    return weights, titles


def translation_attention(model, tokenizer, source, translation):
    """Compute the attention of the decoder's last layer to the source, with both sides' tokens.

    The model reads the translation as in training (teacher forcing): row t is the attention while
    predicting token t, the last one the end. Long texts are truncated, as in `Translator`.

    Args:
        model: `Transformer` with the vocabulary of `tokenizer`.
        tokenizer: `GraphTokenizer`, or the one inside a loaded SavedModel.
        source, translation: str.

    Returns:
        `(weights, target_tokens, source_tokens)`: float32 array (N, T, S), T and S strings; the
        arguments of `attention_svg`. Both sides end in "</s>"; tokens that are part of a character
        are written as hexadecimal bytes.

    Example:
        >>> from tf_transformer.export import load_transformer, shipped_model
        >>> model, tokenizer = load_transformer(shipped_model("en-zh"))
        >>> weights, rows, columns = translation_attention(model, tokenizer, "Hello.", "你好。")
        >>> weights.shape[1:] == (len(rows), len(columns))
        True
    """
    inputs = teacher_forcing_ids(model, tokenizer, source, translation)
    _, attention = model(inputs, False, return_attention_weights=True)
    layers = model.get_config()["num_layers"]  # of encoder and decoder, or both numbers
    last = f"decoder_layer{layers if isinstance(layers, int) else layers[1]}_block2"
    ids = inputs[1][0, 1:], inputs[0][0, :-1]
    tokens = [[*token_labels(tokenizer, one), "</s>"] for one in ids]
    return attention[last][0].numpy(), *tokens
