"""Checkpoints for tests: modified folders, and files in Google's layout."""

import json

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tf_transformer.models.bert.checkpoints.loading import name_table


def changed(folder, change):
    """Apply `change` to the tensors of a checkpoint folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def changed_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def write_tensorflow(folder, model, extra=()):
    """Write a model as a TensorFlow 1 checkpoint in Google's layout; return the folder."""
    folder.mkdir()
    table = name_table("albert" if model.config.num_hidden_groups else "bert", "tensorflow")
    tensors = dict(extra)
    for ours, variable in model.variables_by_name().items():
        array = np.asarray(variable)
        tensors[table.there(ours)] = array.T if table.is_transposed(ours) else array
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )
    fields = model.config.to_dict()
    names = fields.pop("labels"), fields.pop("pooler_activation"), fields.pop("classifier_dropout")
    config = {k: v for k, v in fields.items() if v is not None}
    if names[0]:
        config["id2label"] = {str(n): name for n, name in enumerate(names[0])}
    (folder / "bert_config.json").write_text(json.dumps(config))
    return folder
