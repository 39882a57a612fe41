"""The gradients of a whole model, held against a float64 reference along a random direction."""

import numpy as np
import tensorflow as tf


def check_slope(model, inputs, real, reference, weights):
    """Compare the slope of a random loss in training with that of the reference.

    Args:
        model: of dtype float64.
        inputs: of the model.
        real: bool (B, T), the positions whose logits count.
        reference: function of the weights, dict of path to array, returning the logits of the real
            positions in training.
        weights: dict, the model's weights by path within the model.
    """
    rng = np.random.default_rng(5)
    upstream = rng.standard_normal((np.count_nonzero(real), 13))
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = tf.reduce_sum(tf.boolean_mask(logits, real) * upstream)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [v.value for v in variables])
    directions = {
        v.path.removeprefix(f"{model.path}/"): rng.standard_normal(v.shape) for v in variables
    }
    slope = sum(
        np.sum(tf.convert_to_tensor(g).numpy() * d)
        for g, d in zip(gradients, directions.values(), strict=True)
    )

    def moved(step):
        there = {path: w + step * directions.get(path, 0.0) for path, w in weights.items()}
        return np.sum(reference(there) * upstream)

    np.testing.assert_allclose(slope, (moved(1e-7) - moved(-1e-7)) / 2e-7, rtol=1e-4)
