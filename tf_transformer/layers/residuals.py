"""How a sublayer, its dropout, its residual connection and its norm are joined."""

import dataclasses
import functools

import keras
import tensorflow as tf

from tf_transformer.errors import check, is_number
from tf_transformer.functional.attention.whole import dropout_factors
from tf_transformer.layers.base_layer import WholeState

__all__ = ["NoResidual", "PostNorm", "PreNorm", "Residual"]


@keras.saving.register_keras_serializable(package="tf_transformer")
class Dropout(WholeState, keras.layers.Dropout):
    """Same as `keras.layers.Dropout`, in about two thirds of the time.

    x * factor, where factor = 0 with probability `rate`, else 1 / (1 - rate); Srivastava et al.
    2014. Keras draws 32 random bits per element, this layer 16 (benchmarks/NOTES.md).

    Args:
        rate, noise_shape, seed: see `keras.layers.Dropout`.

    Call arguments:
        inputs: float tensor of any shape.
        training: bool or None; dropout is only applied if true.

    Returns:
        Tensor of the shape and dtype of `inputs`.

    Example:
        >>> sorted(set(Dropout(0.5)(tf.ones((9, 11)), training=True).numpy().ravel().tolist()))
        [0.0, 2.0]
    """

    def __init__(self, rate, *args, **kwargs):
        check(is_number(rate) and 0 <= rate <= 1, "rate", "a number in [0, 1]", f"{rate!r}")
        super().__init__(rate, *args, **kwargs)

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1 or self.noise_shape is not None:
            return super().call(inputs, training=training)
        seed = tf.cast(self.seed_generator.next(), tf.int64)  # uint32: int32 could not hold it
        return inputs * dropout_factors(tf.shape(inputs), inputs.dtype, self.rate, seed)


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
        """The output of a sublayer, joined to `x` (B, T, D); the others are functions of it."""
        raise NotImplementedError

    def __call__(self, x, sublayer, norm, dropout, training=None, tokens=None):
        """Join a sublayer that also returns a second value, such as attention weights."""
        second = None

        def first(x):
            nonlocal second
            output, second = sublayer(x)
            return output

        norm = functools.partial(norm, training=training, tokens=tokens)
        output = self.join(x, first, norm, functools.partial(dropout, training=training))
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
