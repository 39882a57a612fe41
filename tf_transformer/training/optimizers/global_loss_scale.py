"""Loss scaling on which all replicas and workers agree."""

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.training.optimizers.fused_adam import FusedAdam, reduced
from tf_transformer.training.optimizers.global_gradients import global_gradients


@keras.saving.register_keras_serializable(package="tf_transformer")
class GlobalLossScale(keras.optimizers.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer` that also works with several `Workers` or replicas.

    In float16 small gradients become 0 and large ones infinite. The loss is therefore multiplied by
    a scale, and the gradients are divided by it. A step with a gradient that is not finite is
    skipped and halves the scale; after many steps without one the scale doubles (Micikevicius et
    al. 2018, "Mixed Precision Training", section 3.2). Keras 3.15 asks whether the gradients of one
    process or replica are finite, before the optimizer adds up those of all. Here they are added up
    first, so that all of them skip a step that overflows on one.

    Args:
        inner_optimizer: `FusedAdam`.
        initial_scale, dynamic_growth_steps: see `keras.optimizers.LossScaleOptimizer`.

    Raises:
        ValueError: If the optimizer is another one.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> optimizer = GlobalLossScale(FusedAdam(0.1), initial_scale=4.0)
        >>> model.compile(optimizer, "mse")
        >>> history = model.fit(np.ones((4, 1)), np.full((4, 1), np.inf), verbose=0)
        >>> float(optimizer.dynamic_scale)
        2.0
    """

    def __init__(self, inner_optimizer, *args, **kwargs):
        if not isinstance(inner_optimizer, FusedAdam):
            raise ArgumentError(
                "inner_optimizer",
                "a FusedAdam",
                type(inner_optimizer).__name__,
                "Others add up gradients themselves: use keras.optimizers.LossScaleOptimizer.",
            )
        super().__init__(inner_optimizer, *args, **kwargs)
        inner_optimizer.sums_done = True

    def __reduce__(self):
        return reduced(self, super().__reduce__)

    def apply(self, grads, trainable_variables=None):
        super().apply(global_gradients(grads), trainable_variables)
