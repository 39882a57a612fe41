"""Sublayers without a residual connection."""

import dataclasses

from tf_transformer.layers.residuals.residual import Residual


@dataclasses.dataclass(frozen=True)
class NoResidual(Residual):
    """norm(dropout(f(x))): without the sum, to show what it is for.

    Example:
        >>> NoResidual().join(3.0, lambda x: x + 1, lambda x: 10 * x, lambda x: x)
        40.0
    """

    def join(self, x, sublayer, norm, dropout):
        """See `Residual`."""
        return norm(dropout(sublayer(x)))
