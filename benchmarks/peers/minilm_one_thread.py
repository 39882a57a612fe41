"""Sentence vectors of a MiniLM by this library, in a process with as few threads as can be.

Of one sentence a product takes less time than a second thread takes to begin with its half.
"""

import tensorflow as tf
from peers import minilm_ours

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def variants(case, arrays):
    """Of tokens only."""
    functions = minilm_ours.variants(case, arrays)
    return {"tf_transformer, one thread": functions["tf_transformer"]}
