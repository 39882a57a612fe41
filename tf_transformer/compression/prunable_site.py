"""A place in a model with parts that can be removed.

Axes: N parts (heads, or inner units), W width of a part, D model width.
"""

import dataclasses

import keras


@dataclasses.dataclass(frozen=True)
class PrunableSite:
    """The heads of an attention, or the inner units of a feed-forward network."""

    before: tuple
    after: keras.layers.Dense
    count: int
    width: int = 1
    positions: object = None
    grouped: bool = False
