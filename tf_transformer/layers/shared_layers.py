"""Layers of a stack that share their weights."""

from tf_transformer.errors import ArgumentError


def shared_layers(make, num_layers, num_groups=None, layer_sizes=None):
    """Create the layers of a stack; adjacent ones are the same layer.

    Lan et al. 2020, "ALBERT", section 3.1, "cross-layer parameter sharing".
    """
    if num_groups is not None and layer_sizes is not None:
        raise ArgumentError(
            "layer_sizes",
            f"None with num_groups={num_groups}, whose layers share weights",
            layer_sizes,
        )
    if num_layers < 0:
        raise ArgumentError("num_layers", "at least 0", num_layers)
    groups = min(num_groups or num_layers, num_layers)
    made = [make(n) for n in range(groups)]
    return [made[n * groups // num_layers] for n in range(num_layers)]
