"""What every peer of the benchmark of published models decodes."""

import numpy as np


def tasks(label, case, arrays, generate):
    """A function for each of the case's tasks.

    `generate(ids, beams)` returns the new tokens (B, N) of the likeliest continuations of ids
    (B, P), or translations.
    """

    def decoding(ids, beams):
        def decode():
            found = np.asarray(generate(ids, beams), np.int32)
            assert found.shape == (len(ids), case["new_tokens"]), found.shape
            return [found]

        return decode

    return {
        f"{label}: {task}": decoding(arrays["ids"][:rows], beams)
        for task, (beams, rows) in case["tasks"].items()
    }
