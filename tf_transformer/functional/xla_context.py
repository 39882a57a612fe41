"""Whether a graph is part of an XLA program."""

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext


def in_xla_program():
    """Whether the code that runs now is traced for XLA, inside `tf.function(jit_compile=True)`.

    Returns:
        bool.

    Example:
        >>> in_xla_program(), bool(tf.function(in_xla_program, jit_compile=True)())
        (False, True)
    """
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
