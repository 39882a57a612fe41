"""The learning rate of BERT."""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError


@keras.saving.register_keras_serializable(package="tf_transformer")
class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then linear decay to 0.

    peak * min((step + 1) / warmup_steps, (total_steps - step) / (total_steps - warmup_steps)),
    Devlin et al. 2019, appendix A.2.

    Args:
        peak: float, the highest learning rate.
        warmup_steps: int, steps until the peak; 0 starts at the peak.
        total_steps: int, steps of the whole training, including the warm-up.

    Call arguments:
        step: number of finished optimizer steps, 0 for the first.

    Returns:
        float32 scalar tensor, the learning rate: 0 from `total_steps` on, and positive before.

    Raises:
        ValueError: If the peak is not positive or 0 <= warm-up < total does not hold.

    Differs from the published code, in which the decay starts at step 0 and the warm-up replaces
    its beginning, so that the rate drops when the warm-up ends.

    Example:
        >>> schedule = WarmUpLinearDecay(peak=1.0, warmup_steps=2, total_steps=6)
        >>> [float(schedule(step)) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def __init__(self, peak, warmup_steps, total_steps):
        if not peak > 0:
            raise ArgumentError("peak", "a positive learning rate", peak)
        if not 0 <= warmup_steps < total_steps:
            raise ArgumentError(
                "warmup_steps, total_steps",
                "0 <= warmup_steps < total_steps",
                f"{warmup_steps} and {total_steps}",
                "A tenth of the steps is a common warm-up.",
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rising = (step + 1.0) / max(self.warmup_steps, 1)
        falling = (self.total_steps - step) / (self.total_steps - self.warmup_steps)
        return self.peak * tf.maximum(tf.minimum(rising, falling), 0.0)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }
