"""Measure one library in this process: `measure.py LIBRARY DATA` prints JSON.

`side_by_side.py` starts it in the environment of each library.
"""

import argparse
import importlib
import json
import resource
import time

import numpy as np

SIZES = {"layers": 2, "width": 128, "heads": 4, "dff": 512, "vocab": 4000, "positions": 96}
MODULES = {"tf_transformer": "ours", "keras-hub": "hub", "torch": "pytorch"}


def train(library, batches, rate):
    """Target tokens per second over all batches, after one untimed pass over them."""
    epoch = library.trainer(SIZES, rate)
    first = epoch(batches)
    tokens = sum(int(np.count_nonzero(target)) for _, target in batches)
    start = time.perf_counter()
    loss = epoch(batches)
    return {"tokens_per_second": tokens / (time.perf_counter() - start), "loss": [first, loss]}


def main():
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=MODULES)
    parser.add_argument("data", help="batches, an .npz of side_by_side.py")
    parser.add_argument("--rate", type=float, default=0.1)
    options = parser.parse_args()
    with np.load(options.data) as data:
        arrays = [[data[f"{name}{i}"] for name in "abc"] for i in range(len(data.files) // 3)]
    batches = [((source, target_in), target_out) for source, target_in, target_out in arrays]
    library = importlib.import_module(f"peers.{MODULES[options.library]}")
    result = train(library, batches, options.rate)
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
