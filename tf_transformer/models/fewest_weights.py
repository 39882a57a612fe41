"""How large a model is at least, without building it."""

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.positions.shaw_positions import ShawPositions
from tf_transformer.layers.positions.t5_positions import T5Positions

_SLACK = 2**16  # numbers


def check_sizes(source, found, embedded, width, key_dim, layers, architecture=None):
    """Refuse sizes far beyond what a file of weights holds, before a model of them is built.

    A smaller difference is left to whoever compares the shapes.

    Args:
        source: str or Path of what has the sizes, for the error.
        found: int, how many numbers the file of weights has.
        embedded: int, how many of them word vectors take.
        width: int, of the model.
        key_dim: int, of an attention head.
        layers: list of `(count, heads, inner)`, ints: how many layers with their own weights are
            alike, the number of their heads, and the inner width of their feed-forward network.
        architecture: None or `Architecture`.

    Raises:
        ValueError: If the model has more than four times as many weights.

    Example:
        >>> check_sizes("config.json", 10_000_000, 100 * 8, 8, 4, [(10**9, 2, 16)])
        Traceback (most recent call last):
        tf_transformer.errors.ArgumentError: config.json: expected the sizes of a model with at most
        10,000,000 weights, got
        those of one with at least 256,000,000,800.
    """
    fewest = embedded + sum(
        count * width * (2 * heads * key_dim + inner) for count, heads, inner in layers
    )
    part = architecture and architecture.positions
    if isinstance(part, ShawPositions):
        fewest += 2 * part.max_distance * key_dim
    elif isinstance(part, T5Positions):
        fewest += part.num_buckets
    elif part is not None:
        fewest += (part.max_position or 0) * width
    if fewest > 4 * found + _SLACK:
        raise ArgumentError(
            "path",
            f"the sizes of a model with at most {found:,} weights",
            f"those of one with at least {fewest:,}",
            place=source,
        )
