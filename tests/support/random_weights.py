"""Random weights with which a small untrained model gives distinct outputs."""

import numpy as np


def randomize(model, seed):
    """Redraw all weights of a built model; biases and gains stay near their initial values."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = rng.normal(0, 0.1 if weight.shape.rank == 1 else 0.7, weight.shape)
        values = values + weight.path.endswith(("gamma", "variance"))
        weight.assign(values)
    return model
