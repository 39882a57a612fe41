"""Normalisation of the input of a sublayer."""

import dataclasses

from tf_transformer.layers.residuals.residual import Residual


@dataclasses.dataclass(frozen=True)
class PreNorm(Residual):
    """x + dropout(f(norm(x))), with one more normalisation at the end of the stack.

    Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", figure 1 (b). The
    sum is never normalised, so gradients reach every layer: deep stacks train without a warm-up.

    Example:
        >>> PreNorm().join(3.0, lambda x: x + 1, lambda x: 10 * x, lambda x: x)
        34.0
    """

    final_norm = True

    def join(self, x, sublayer, norm, dropout):
        """See `Residual`."""
        return x + dropout(sublayer(norm(x)))
