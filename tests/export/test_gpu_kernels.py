"""What reads and writes variables has kernels for GPUs: no other place is allowed to such an op.

TensorFlow moves other operations to the CPU where they have no kernel for a GPU; an operation on a
variable must run where the variable is. This TensorFlow knows the kernels without a GPU.
"""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework.kernels import get_registered_kernels_for_op
from tiny_bert import tiny_folder

from tf_transformer import TextEncoder
from tf_transformer.export import shipped_model
from tf_transformer.export.saving import save_module

pytestmark = pytest.mark.skipif(
    not tf.test.is_built_with_cuda(), reason="this TensorFlow has no kernels for GPUs"
)


def without_kernel(folder):
    """Operations on variables in a SavedModel that no kernel of a GPU takes: a set of str."""
    graph = SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    on_variables = [node for node in nodes if "Resource" in node.op or "VariableOp" in node.op]
    assert on_variables
    return {_text(node) for node in on_variables if not _runs_on_a_gpu(node)}


def _text(node):
    types = {key: tf.as_dtype(value.type).name for key, value in node.attr.items() if value.type}
    return f"{node.op} {types}"


def _runs_on_a_gpu(node):
    return any(
        kernel.device_type in ("GPU", "DEFAULT")  # DEFAULT: of any device
        and all(
            node.attr[constraint.name].type in constraint.allowed_values.list.type
            for constraint in kernel.constraint
        )
        for kernel in get_registered_kernels_for_op(node.op).kernel
    )


def test_a_bool_read_by_place_has_none(tmp_path):
    module = tf.Module()
    module.flags = tf.Variable([True, False])
    module.read = tf.function(lambda: tf.gather_nd(module.flags, [0]), input_signature=[])
    save_module(module, tmp_path / "model", {})
    found = without_kernel(tmp_path / "model")
    assert len(found) == 1 and found.pop().startswith("ResourceGatherNd {")


def test_the_included_translator():
    assert without_kernel(shipped_model("en-zh")) == set()


@pytest.mark.slow
def test_a_text_model(tmp_path):
    model = TextEncoder.from_pretrained(tiny_folder(tmp_path / "bert"))
    model.save(tmp_path / "model")
    assert without_kernel(tmp_path / "model") == set()
