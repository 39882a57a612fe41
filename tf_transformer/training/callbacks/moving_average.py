"""A callback that validates a model with the moving average of its weights."""

import keras

from tf_transformer.errors import ArgumentError


class MovingAverage(keras.callbacks.Callback):
    """Replaces the weights with their moving average during validation.

    average <- m * average + (1 - m) * weights after every step (Polyak and Juditsky, 1992), kept by
    the optimizer (`use_ema=True`, m = `ema_momentum`). It substitutes for the learning rate decay
    that a short training has no time for; the paper averages its last checkpoints for the same
    reason (section 6.1). `keras.callbacks.SwapEMAWeights` swaps the two by adding and subtracting,
    which rounds; here the weights are restored bit for bit.

    Raises:
        ValueError: If the optimizer keeps no average when training begins.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(use_ema=True, ema_momentum=0.9), "mse")
        >>> x = np.ones((4, 1))
        >>> history = model.fit(
        ...     x, x, validation_data=(x, x), callbacks=[MovingAverage()], verbose=0
        ... )
    """

    def __init__(self):
        super().__init__()
        self._own = None

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        if not getattr(optimizer, "inner_optimizer", optimizer).use_ema:  # that of a loss scale
            raise ArgumentError(
                "optimizer",
                "one that averages the weights",
                "use_ema=False",
                "Compile with keras.optimizers.Adam(..., use_ema=True, ema_momentum=0.998).",
            )

    def on_test_begin(self, logs=None):
        self.swap_in()

    def on_test_end(self, logs=None):
        self.swap_out()

    def swap_in(self):
        """Replace the weights with the average, unless this is already done."""
        if self._own is None:
            variables = self.model.trainable_variables
            self._own = [variable.numpy() for variable in variables]
            self.model.optimizer.finalize_variable_values(variables)

    def swap_out(self):
        """Restore the weights, unless this is already done."""
        if self._own is not None:
            for variable, value in zip(self.model.trainable_variables, self._own, strict=True):
                variable.assign(value)
            self._own = None
