"""Tokens as texts for figures.

Axes: T tokens.
"""


def token_labels(tokenizer, ids):
    """The text of each token, without the space before a word."""
    names = {number: name for name, number in getattr(tokenizer, "special_tokens", {}).items()}
    pieces = tokenizer.pieces(ids).numpy()
    return [names.get(n, _label(piece)) for n, piece in zip(ids.numpy(), pieces, strict=True)]


def _label(piece):
    try:
        return piece.decode("utf-8").strip() or "\N{OPEN BOX}"
    except UnicodeDecodeError:
        return piece.hex()
