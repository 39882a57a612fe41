"""`ours_int8` with one worker for each core: each has a part of the batch and no other thread."""

import concurrent.futures
import os

import numpy as np
import tensorflow as tf

from benchmarks.decoding.peers.batches import batches, padded
from benchmarks.decoding.peers.ours import translation
from benchmarks.decoding.peers.ours_int8 import models

tf.config.threading.set_intra_op_parallelism_threads(1)


def variants(case, arrays):
    """Greedy decoding or beam search; a single sentence has no parts."""
    if case["batch"] == 1:
        return {}
    cores = os.cpu_count()
    return {
        f"{name}, {cores} workers": in_parts(translation(model, case), cores, batches(case, arrays))
        for name, model in models(case, arrays).items()
    }


def in_parts(translate, count, sources):
    """A function that yields the translations of each batch."""
    workers = concurrent.futures.ThreadPoolExecutor(count)

    def translate_all():
        for source in sources:
            parts = np.array_split(source, count)
            found = workers.map(translate, map(tf.constant, parts))
            yield padded(row[row != 0] for part in found for row in part)

    return translate_all
