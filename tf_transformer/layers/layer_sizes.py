"""The sizes of single layers in a stack."""

from tf_transformer.errors import ArgumentError


def check_layer_sizes(layer_sizes, num_layers, names, argument="layer_sizes"):
    """Return the sizes of each layer of a stack as a tuple of tuples."""
    try:
        sizes = tuple(tuple(map(_positive, layer)) for layer in layer_sizes)
        right = len(sizes) == num_layers and all(len(layer) == len(names) for layer in sizes)
    except (TypeError, ValueError):
        right = False
    if not right:
        raise ArgumentError(
            argument,
            f"({', '.join(names)}), positive ints, for each of the {num_layers} layers",
            f"{layer_sizes!r}",
        )
    return sizes


def _positive(size):
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError
    return size
