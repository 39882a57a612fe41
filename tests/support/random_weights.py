"""Random weights with which a small untrained model gives distinct outputs."""

import numpy as np


def randomize(model, seed):
    """Redraw all weights of a built model; biases and gains stay near their initial values."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = rng.normal(0, 0.1 if weight.shape.rank == 1 else 0.7, weight.shape)
        # Variances of about the size of what they normalize.
        weight.assign(values + {"gamma": 1, "moving_variance": 20}.get(weight.name, 0))
    return model
