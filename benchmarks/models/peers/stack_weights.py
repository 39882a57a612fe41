"""Weights of a BERT-base encoder stack, the same for every peer: 12 layers, width 768, 12 heads."""

import numpy as np

LAYERS, WIDTH, HEADS, DFF, EPSILON = 12, 768, 12, 3072, 1e-12
SHAPES = {
    "query": (WIDTH, WIDTH),
    "key": (WIDTH, WIDTH),
    "value": (WIDTH, WIDTH),
    "output": (WIDTH, WIDTH),
    "hidden": (WIDTH, DFF),
    "narrow": (DFF, WIDTH),
}


def stack_weights():
    """A list of layers: name to (kernel (in, out), bias); norms to (gamma, beta)."""
    rng = np.random.default_rng(0)

    def normal(*shape, mean=0.0, deviation=0.02):
        return (mean + deviation * rng.standard_normal(shape, np.float32)).astype(np.float32)

    layers = []
    for _ in range(LAYERS):
        layer = {name: (normal(*shape), normal(shape[1])) for name, shape in SHAPES.items()}
        for name in ("norm1", "norm2"):
            layer[name] = normal(WIDTH, mean=1.0), normal(WIDTH)
        layers.append(layer)
    return layers
