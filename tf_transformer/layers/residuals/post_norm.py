"""Normalisation after the sum, as in the paper."""

import dataclasses

from tf_transformer.layers.residuals.residual import Residual


@dataclasses.dataclass(frozen=True)
class PostNorm(Residual):
    """norm(x + dropout(f(x))), "Attention Is All You Need", section 3.1.

    Example:
        >>> PostNorm().join(3.0, lambda x: x + 1, lambda x: 10 * x, lambda x: x)
        70.0
    """

    def join(self, x, sublayer, norm, dropout):
        """See `Residual`."""
        return norm(x + dropout(sublayer(x)))
