"""Adam that updates each weight in a single operation."""

import functools

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.training.optimizers.global_gradients import global_gradients


@keras.saving.register_keras_serializable(package="tf_transformer")
class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` with one memory pass per weight instead of a dozen.

    m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,
    w <- w - rate sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)

    (Kingma and Ba 2015, end of section 2; "Attention Is All You Need", section 5.3, uses b1 = 0.9,
    b2 = 0.98, epsilon = 1e-9.) Arguments, variables, checkpoints and, except for rounding, results
    are those of `keras.optimizers.Adam`. Keras computes m, v and w with a dozen element-wise
    operations, each of which reads and writes as many numbers as there are weights; TensorFlow's
    `ResourceApplyAdam` does it in one. Results differ if the gradient of an embedding contains a
    row twice: here the two are summed before clipping and squaring, while Keras 3.15 takes each.
    `amsgrad=True` uses the Keras implementation. With several `Workers` or replicas the gradients
    are those of the whole batch before anything is clipped; Keras clips those of each replica.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(FusedAdam(1e-3, 0.9, 0.98, 1e-9), "mse")
        >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    """

    sums_done = False  # whether the gradients that `apply` gets are those of the whole batch
    _powers_once = None  # while `apply` runs: `_powers`, computed once for a dtype

    def __reduce__(self):
        return reduced(self, super().__reduce__)

    def apply(self, grads, trainable_variables=None):
        # Once a step: done for each weight, it would be a fourth of a small model's operations.
        self._powers_once = functools.cache(self._powers)
        try:
            grads = grads if self.sums_done else global_gradients(grads)
            super().apply(grads, trainable_variables)
        finally:
            self._powers_once = None

    def _powers(self, dtype):
        step = tf.cast(self.iterations + 1, dtype)
        return [tf.cast(beta, dtype) ** step for beta in (self.beta_1, self.beta_2)]

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # they are added up

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad:
            return super().update_step(gradient, variable, learning_rate)
        index = self._get_variable_index(variable)
        w, m, v = (
            x.value if isinstance(x, keras.Variable) else x
            for x in (variable, self._momentums[index], self._velocities[index])
        )
        beta_1_power, beta_2_power = (self._powers_once or self._powers)(w.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=w.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=beta_1_power,
            beta2_power=beta_2_power,
            lr=tf.cast(learning_rate, w.dtype),
            beta1=tf.cast(self.beta_1, w.dtype),
            beta2=tf.cast(self.beta_2, w.dtype),
            epsilon=tf.cast(self.epsilon, w.dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), w.dtype),
        )


def reduced(optimizer, reduce):
    """Return what pickles an optimizer; refuse a built one, whose moments Keras 3.15 would drop."""
    if optimizer.built:
        raise ArgumentError(
            "optimizer",
            "one that is not built to copy or pickle alone",
            (
                f"a built {type(optimizer).__name__}, whose state belongs to the variables of "
                "a model"
            ),
            "Copy the compiled model, or use tf.train.Checkpoint.",
        )
    return reduce()
