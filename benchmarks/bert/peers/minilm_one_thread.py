"""Sentence vectors of a MiniLM with this library, in a process with as few threads as possible.

For one sentence a matrix product takes less time than a second thread needs to start its half.
"""

import tensorflow as tf

from benchmarks.bert.peers import minilm_ours

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def variants(case, arrays):
    """Without padding."""
    functions = minilm_ours.variants(case, arrays)
    return {"tf_transformer, one thread": functions["tf_transformer"]}
