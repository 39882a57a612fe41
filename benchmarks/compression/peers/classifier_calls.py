"""What `litert.py` asks of every peer: the test part's accuracy, or texts one by one."""

import numpy as np

BATCH = 32


def calls(case, arrays, classify, size):
    """A function for the benchmark.

    Args:
        case, arrays: see `litert.py`.
        classify: function `(ids, mask) -> probabilities` of int32 arrays (B, T).
        size: float, MiB of the files.
    """
    if not case["score"]:
        texts = [arrays[name] for name in arrays if name.startswith("ids")]
        masks = [np.ones_like(ids) for ids in texts]
        return lambda: [classify(*pair) for pair in zip(texts, masks, strict=True)]

    def score():
        ids, mask, found = arrays["test_ids"], arrays["test_mask"], []
        for start in range(0, len(ids), BATCH):
            rows = slice(start, start + BATCH)
            longest = mask[rows].sum(1).max()
            found.append(classify(ids[rows, :longest], mask[rows, :longest]))
        right = np.concatenate(found).argmax(1) == arrays["labels"]
        return [right.mean(), size]

    return score


def seen_batches(arrays):
    """The training texts that calibrate, as `(ids, mask)`."""
    ids, mask = arrays["seen_ids"], arrays["seen_mask"]
    for start in range(0, len(ids), BATCH):
        rows = slice(start, start + BATCH)
        longest = mask[rows].sum(1).max()
        yield ids[rows, :longest], mask[rows, :longest]
