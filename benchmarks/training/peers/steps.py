"""Training steps as a variant, for the peers that have a `trainer`."""

import numpy as np


def steps(name, trainer, case, arrays):
    """A function that trains on the batches in `arrays`, `case["steps"]` times over.

    It returns the mean loss. Batch i is source `a{i}`, target in `b{i}` and target out `c{i}`.
    """
    epoch = trainer(case["sizes"], case["rate"])
    batches = [
        ((arrays[f"a{i}"], arrays[f"b{i}"]), arrays[f"c{i}"]) for i in range(len(arrays) // 3)
    ]
    return {name: lambda: [np.float32(epoch(batches * case["steps"]))]}
