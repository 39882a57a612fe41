"""Writing SavedModels."""

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.saved_model.fingerprinting_utils import write_fingerprint

from tf_transformer.data.replacing import replacing
from tf_transformer.export.small_batches import as_new
from tf_transformer.export.warm_up_requests import write_warm_up_requests


def save_module(module, path, signatures, warm_up=()):
    """Write a SavedModel for inference."""
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with replacing(path, only_with="saved_model.pb") as beside, as_new(module):
        tf.saved_model.save(module, str(beside), signatures, options)
        _forget_custom_gradients(beside / "saved_model.pb")
        write_fingerprint(str(beside))
        if warm_up:
            write_warm_up_requests(beside, warm_up)


def _forget_custom_gradients(file):
    """Remove the names of custom gradients, of which each load would warn that they are missing.

    Saved with the model, they would be a third of the functions that loading rebuilds, and nothing
    that serves needs them.
    """
    saved = SavedModel.FromString(file.read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.attr.pop("_gradient_op_type", None)
    file.write_bytes(saved.SerializeToString(deterministic=True))
