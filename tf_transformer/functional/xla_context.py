"""Where the code that runs now will be computed: in an XLA program, on an accelerator."""

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext


def in_xla_program():
    """Whether the code that runs now is traced for XLA, inside `tf.function(jit_compile=True)`."""
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def has_accelerator():
    """Whether TensorFlow sees a GPU or TPU, where it then places operations."""
    return any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))
