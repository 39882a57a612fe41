"""A published model in ONNX Runtime, exported and run by optimum; int8 with dynamic ranges."""

import os
from pathlib import Path

from onnxruntime import SessionOptions
from optimum.onnxruntime import (
    AutoQuantizationConfig,
    ORTModelForCausalLM,
    ORTModelForSeq2SeqLM,
    ORTQuantizer,
)

from benchmarks.decoding.peers.published_tasks import tasks
from benchmarks.decoding.peers.published_torch import generating


def variants(case, arrays):
    """`generate` of optimum, with caches."""
    kind = ORTModelForSeq2SeqLM if case["translates"] else ORTModelForCausalLM
    options = SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    model = kind.from_pretrained(_exported(kind, case), session_options=options)
    return tasks("ONNX Runtime", case, arrays, generating(model, case))


def _exported(kind, case):
    """The folder of the exported model, written once."""
    folder = Path(f"{case['folder']}-onnx")
    if not folder.exists():
        kind.from_pretrained(case["folder"], export=True).save_pretrained(folder)
    if case["type"] == "float32":
        return folder
    smaller = Path(f"{folder}-int8")
    if not smaller.exists():
        settings = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False)
        for file in folder.glob("*.onnx"):
            quantizer = ORTQuantizer.from_pretrained(folder, file_name=file.name)
            quantizer.quantize(settings, smaller, file_suffix="")
    return smaller
