"""What all ways to join a sublayer to its input have in common.

Axes: B batch, T length, D model width.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Residual:
    """Base class: a subclass overrides `join`.

    Attributes:
        final_norm: bool, whether a stack of layers ends in one more normalisation.

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
        """Join a sublayer that returns more than one value."""
        others = []

        def first(x):
            output, other = sublayer(x)
            others.append(other)
            return output

        output = self.join(
            x,
            first,
            lambda y: norm(y, training=training, tokens=tokens),
            lambda y: dropout(y, training=training),
        )
        return output, others[0]
