"""A place in a model with parts that can be removed.

Axes: N parts (heads, or inner units), W width of a part, D model width.
"""

import dataclasses

import keras


@dataclasses.dataclass(frozen=True)
class PrunableSite:
    """The heads of an attention, or the inner units of a feed-forward network.

    Args:
        before: tuple of dense layers with kernels (D, N W), which compute the parts.
        after: dense layer with a kernel (N W, D), which reads them.
        count: int, N.
        width: int, W: the width of a head, 1 for units.
        positions: the part that tells attention the order of tokens, or None.
        grouped: bool, whether several heads share their keys.

    Example:
        >>> hidden, output = keras.layers.Dense(32), keras.layers.Dense(8)
        >>> PrunableSite((hidden,), output, count=32).width
        1
    """

    before: tuple
    after: keras.layers.Dense
    count: int
    width: int = 1
    positions: object = None
    grouped: bool = False
