"""How a sublayer, its residual connection and its norm are joined."""

import dataclasses

__all__ = ["NoResidual", "PostNorm", "PreNorm", "Residual"]


@dataclasses.dataclass(frozen=True)
class Residual:
    """Base class: a subclass overrides `join`.

    Attributes:
        final_norm: bool, whether a stack of layers ends in one more normalization.

    Example:
        >>> class Doubled(Residual):
        ...     def join(self, x, sublayer, norm, dropout):
        ...         return norm(2.0 * x + dropout(sublayer(x)))
        >>> Doubled().final_norm
        False
    """

    final_norm = False

    def join(self, x, sublayer, norm, dropout):
        """Return the output of a sublayer, joined to its input.

        Args:
            x: float tensor (B, T, D).
            sublayer, norm, dropout: functions of a tensor (B, T, D), which return another one.

        Returns:
            (B, T, D).
        """
        raise NotImplementedError

    def __call__(self, x, sublayer, norm, dropout, training=None, tokens=None):
        """Join a sublayer that also returns a second value, such as attention weights."""
        second = None

        def first(x):
            nonlocal second
            output, second = sublayer(x)
            return output

        output = self.join(
            x,
            first,
            lambda y: norm(y, training=training, tokens=tokens),
            lambda y: dropout(y, training=training),
        )
        return output, second


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


@dataclasses.dataclass(frozen=True)
class PreNorm(Residual):
    """x + dropout(f(norm(x))), with one more normalization at the end of the stack.

    Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", figure 1 (b). The
    sum is never normalized, so gradients reach every layer: deep stacks train without a warm-up.

    Example:
        >>> PreNorm().join(3.0, lambda x: x + 1, lambda x: 10 * x, lambda x: x)
        34.0
    """

    final_norm = True

    def join(self, x, sublayer, norm, dropout):
        """See `Residual`."""
        return x + dropout(sublayer(norm(x)))


@dataclasses.dataclass(frozen=True)
class NoResidual(Residual):
    """norm(dropout(f(x))), without the residual sum, to show what it is for.

    Example:
        >>> NoResidual().join(3.0, lambda x: x + 1, lambda x: 10 * x, lambda x: x)
        40.0
    """

    def join(self, x, sublayer, norm, dropout):
        """See `Residual`."""
        return norm(dropout(sublayer(x)))
