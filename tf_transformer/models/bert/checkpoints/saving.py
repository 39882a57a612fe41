"""Saves a model to a folder in Hugging Face's layout."""

import json

import numpy as np

from tf_transformer.models.bert.checkpoints.config_files import architecture_of, config_file
from tf_transformer.models.bert.checkpoints.name_table import name_table


def save_folder(folder, variables, config, model_name, with_prefix, architecture=None):
    """Write `config.json` and `model.safetensors` into a folder."""
    from safetensors.numpy import save_file

    table = name_table(architecture_of(config, architecture), "safetensors")
    tensors = {}
    for ours, variable in variables.items():
        there = table.there(ours)
        array = np.asarray(variable)
        array = np.ascontiguousarray(array.T if table.is_transposed(ours) else array)
        tensors[there if with_prefix else there.removeprefix(table.prefix)] = array
    content = config_file(config, model_name, architecture)
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
