"""A classifier by LiteRT, in every dtype that was written, with all threads and with one."""

import os
from pathlib import Path

from benchmarks.compression.peers.classifier_calls import calls
from tf_transformer import litert


def variants(case, arrays):
    """The files in the folder."""
    functions = {}
    for path in sorted(Path(case["folder"]).glob("*/model.tflite")):
        size = path.stat().st_size / 2**20
        for threads, words in ((os.cpu_count(), ""), (1, ", one thread")):
            model = litert.load(path.parent, threads)
            name = f"LiteRT, {path.parent.name}{words}"
            functions[name] = calls(case, arrays, _classify(model), size)
    return functions


def _classify(model):
    def classify(ids, mask):
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
        return model.functions["classify"](**inputs)["probabilities"]

    return classify
