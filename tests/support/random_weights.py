"""Weights with which a small untrained model says different things about different inputs."""

import numpy as np


def randomize(model, seed):
    """Draws all weights of a built model anew; vectors stay near what they begin with."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = rng.normal(0, 0.1 if weight.shape.rank == 1 else 0.7, weight.shape)
        weight.assign(values + weight.path.endswith("gamma"))
    return model
