"""The sizes of single layers in a stack."""

from tf_transformer.errors import ArgumentError


def check_layer_sizes(layer_sizes, num_layers, names, argument="layer_sizes"):
    """Return the sizes of each layer of a stack as a tuple of tuples.

    Args:
        layer_sizes: sequence with the sizes of each layer, positive ints.
        num_layers: int, the number of layers.
        names: tuple of str, what the numbers of one layer mean.
        argument: str, the name to use in errors.

    Returns:
        tuple of tuples of int.

    Raises:
        ValueError: If the number of layers or of their sizes differs, or a size is no positive int.

    Example:
        >>> check_layer_sizes([[4, 32], [1, 8]], 2, ("num_heads", "dff"))
        ((4, 32), (1, 8))
    """
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
