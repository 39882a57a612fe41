"""The learning rate of the paper."""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError


@keras.saving.register_keras_serializable(package="tf_transformer")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step.

    scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), steps counted from 1,
    "Attention Is All You Need", equation 3, section 5.3.

    Args:
        d_model: int, width of the model.
        warmup_steps: int, steps until the peak.
        scale: float, multiplies the learning rate.

    Call arguments:
        step: number of finished optimizer steps, 0 for the first.

    Returns:
        float32 scalar tensor, the learning rate.

    Raises:
        ValueError: If an argument is not positive.

    Differs from the paper: Keras counts finished steps from 0, so 1 is added. The paper's step 1 is
    step 0 in Keras, and the first update has a nonzero learning rate.

    Example:
        >>> schedule = InverseSquareRootSchedule(d_model=64, warmup_steps=100)
        >>> round(float(schedule(99)), 6)
        0.0125
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        for name, value in (("d_model", d_model), ("warmup_steps", warmup_steps), ("scale", scale)):
            if value <= 0:
                raise ArgumentError(name, "a positive number", value)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step):
        step = tf.cast(step, tf.float32) + 1.0
        rising = step * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * tf.minimum(tf.math.rsqrt(step), rising)

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }
