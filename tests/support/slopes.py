"""The gradients of a whole model, held against a float64 reference along a random direction."""

import numpy as np
import tensorflow as tf


def by_path(model):
    """The trainable variables of a model by their path within it."""
    return {v.path.removeprefix(f"{model.path}/"): v for v in model.trainable_variables}


def check_slope(output, variables, weights, reference, step=1e-7):
    """Compare the slope of a random sum of the output with that of the reference.

    Args:
        output: function without arguments, the model's output in float64.
        variables: dict of name to variable, those that move.
        weights: dict of name to array, all weights of the reference.
        reference: function of such a dict, returning what `output` should be.
        step: float, of the central difference.
    """
    rng = np.random.default_rng(5)
    with tf.GradientTape() as tape:
        outputs = output()
        upstream = rng.standard_normal(outputs.shape)
        loss = tf.reduce_sum(outputs * upstream)
    gradients = tape.gradient(loss, [variable.value for variable in variables.values()])
    gradients = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    directions = {name: rng.standard_normal(v.shape) for name, v in variables.items()}
    slope = sum(np.sum(g * d) for g, d in zip(gradients, directions.values(), strict=True))

    def moved(step):
        there = {name: w + step * directions.get(name, 0.0) for name, w in weights.items()}
        return np.sum(reference(there) * upstream)

    np.testing.assert_allclose(slope, (moved(step) - moved(-step)) / (2 * step), rtol=1e-4)
