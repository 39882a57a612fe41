"""Rotary positions."""

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.rotary import PAIRINGS, rotate
from tf_transformer.layers.positions.positions import Positions


@keras.saving.register_keras_serializable(package="tf_transformer")
class RotaryPositions(Positions):
    """Turn queries and keys by their position, so that scores depend on the distance alone.

    Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2;
    see `functional.rotary.rotate`.

    Args:
        base: float, at least 1. For texts longer than those of training by a factor f, a base of
            10000 f^(H / (H - 2)) keeps the fastest angles and slows the others.
        stretch: float, above 0: positions are divided by it; f interpolates.
        pairing: "interleaved" or "halves", which columns form a pair.

    Raises:
        ValueError: If a number is out of range, `pairing` is unknown, or the head width is odd.

    Example:
        >>> part = RotaryPositions(pairing="halves")
        >>> part.rotate(tf.ones((1, 2, 3, 4)), tf.range(3)).shape.as_list()
        [1, 2, 3, 4]
    """

    def __init__(self, base=10000.0, stretch=1.0, pairing="interleaved", **kwargs):
        super().__init__(**kwargs)
        if base < 1 or stretch <= 0:
            raise ArgumentError("base, stretch", "at least 1 and above 0", f"{base} and {stretch}")
        if pairing not in PAIRINGS:
            raise ArgumentError("pairing", f"one of {', '.join(PAIRINGS)}", f"{pairing!r}")
        self.base, self.stretch, self.pairing = base, stretch, pairing

    def rotate(self, heads, positions):
        """See `Positions`: the heads, turned."""
        width = heads.shape[-1]
        if width % 2:
            raise ArgumentError(
                "RotaryPositions",
                "an even head width, for pairs of columns",
                width,
                "Choose d_model and num_heads so that d_model / num_heads is even.",
            )
        return rotate(heads, positions, self.base, self.stretch, self.pairing)

    def get_config(self):
        config = {"base": self.base, "stretch": self.stretch, "pairing": self.pairing}
        return {**super().get_config(), **config}
