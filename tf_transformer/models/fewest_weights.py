"""How large a model is at least, without building it."""

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.positions import ShawPositions, T5Positions

_SLACK = 2**16  # numbers


def check_sizes(source, found, embedded, width, key_dim, layers, architecture=None):
    """Refuse sizes far beyond what a file of weights holds, before a model of them is built.

    A smaller difference is left to whoever compares the shapes.
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
