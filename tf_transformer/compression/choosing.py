"""Which heads or units to remove."""

import numpy as np

from tf_transformer.errors import ArgumentError


def least_important(importance, share, *, relative=True):
    """Choose the least important heads or units of a whole model.

    Each layer keeps at least one.

    Args:
        importance: dict, name -> list with a float array (N,) for each layer, from
            `head_importance` or `unit_importance`.
        share: float in [0, 1), the share of all heads to choose.
        relative: bool, True divides the numbers of each layer by their Euclidean norm first, so
            that layers can be compared; Michel et al. 2019, section 4.1.

    Returns:
        dict, name -> {layer: list of numbers}, as `pruned` takes it.

    Raises:
        ValueError: If the share is out of range, or one head for each layer is more than is left.

    Example:
        >>> importance = {"encoder": [np.array([3.0, 1.0, 2.0]), np.array([0.3, 0.1])]}
        >>> least_important(importance, 0.4)
        {'encoder': {0: [1], 1: [1]}}
    """
    if not 0 <= share < 1:
        raise ArgumentError("share", "a number in [0, 1)", f"{share!r}")
    layers = {(name, n): v for name, some in importance.items() for n, v in enumerate(some)}
    count = round(share * sum(len(values) for values in layers.values()))
    candidates = []
    for place, values in layers.items():
        values = np.asarray(values, np.float64)
        if relative:
            values = values / (np.linalg.norm(values) or 1.0)
        best = np.argmax(values)  # stays
        candidates += [(value, place, n) for n, value in enumerate(values) if n != best]
    if count > len(candidates):
        raise ArgumentError(
            "share",
            (
                f"at most {len(candidates) / sum(map(len, layers.values())):.3f}, so that "
                "each layer keeps one"
            ),
            share,
        )
    chosen = {name: {} for name in importance}
    for _, (name, layer), n in sorted(candidates)[:count]:
        chosen[name].setdefault(layer, []).append(n)
    return {
        name: {layer: sorted(found) for layer, found in sorted(some.items())}
        for name, some in chosen.items()
    }
