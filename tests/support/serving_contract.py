"""What TensorFlow Serving expects of a SavedModel."""

from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

# Ops that TensorFlow knows but TensorFlow Serving cannot run: those of Python, those that only
# XLA's own device has, and internal ones. What `jit_compile` marks for XLA consists of plain ops,
# and the server has the compiler (xla_cpu_jit in its tensorflow_serving/model_servers/BUILD).
FOREIGN = ("Py", "EagerPy", "Xla", "TPU", "TRT", "_")
# The int8 product of oneDNN, in every TensorFlow for x86.
ALLOWED = {"_QuantizedMatMul"}


def check_serving_contract(folder):
    """Check the ops and the signatures of a SavedModel.

    Every op is registered by `import tensorflow`, has a kernel for the CPU, and is not `FOREIGN`.
    In each signature that takes `text`, the batch is the first axis of the text and of all outputs,
    with any size; other inputs are scalars, or a list of strings that counts for all texts, `stop`.

    Returns:
        dict, name of each signature with `text` to the list of its outputs.
    """
    saved = SavedModel.FromString((Path(folder) / "saved_model.pb").read_bytes())
    [graph] = saved.meta_graphs
    check_operations(graph.graph_def)
    signatures = {}
    for name, signature in graph.signature_def.items():
        if "text" not in signature.inputs:
            continue
        assert signature.method_name == "tensorflow/serving/predict"
        for part in (signature.inputs, signature.outputs):
            for key, tensor in part.items():
                shape = tf.TensorShape(tensor.tensor_shape)
                if part is signature.inputs and key != "text":
                    assert shape.rank == (key == "stop"), (name, key, shape)
                else:
                    assert shape.rank >= 1 and shape[0] is None, (name, key, shape)
        assert tf.TensorShape(signature.inputs["text"].tensor_shape).rank == 1
        signatures[name] = sorted(signature.outputs)
    return signatures


def check_operations(graph):
    """See `check_serving_contract`; `graph` is a `GraphDef`."""
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    names = {node.op for node in nodes} - {function.signature.name for function in functions}
    for name in sorted(names):
        assert op_def_registry.get(name) is not None, f"{name} is not TensorFlow's"
        assert name in ALLOWED or not name.startswith(FOREIGN), name
        kernels = get_registered_kernels_for_op(name).kernel
        assert any(kernel.device_type in ("CPU", "DEFAULT") for kernel in kernels), (
            f"{name} has no kernel"
        )
