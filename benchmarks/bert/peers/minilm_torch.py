"""Sentence vectors of a MiniLM with torch, eager and compiled, and with ONNX Runtime."""

import os
import tempfile

import onnxruntime
import torch
from onnxruntime.transformers.optimizer import optimize_model
from transformers import AutoModel

from benchmarks.bert.peers.batches import as_batches


class Encoder(torch.nn.Module):
    """What sentence-transformers computes: the mean of the tokens, scaled to length 1."""

    def __init__(self, case, attention):
        super().__init__()
        self.bert = AutoModel.from_pretrained(case["model"], attn_implementation=attention)
        self.bert.to(getattr(torch, case["dtype"])).eval()

    def forward(self, ids, mask):
        states = self.bert(ids, attention_mask=mask).last_hidden_state.float()
        weights = mask.unsqueeze(-1).float()
        total = (states * weights).sum(1)
        return torch.nn.functional.normalize(total / weights.sum(1).clamp(min=1e-9))


def variants(case, arrays):
    """ONNX Runtime has no bfloat16 on a CPU."""
    batches = as_batches(arrays, lambda array: torch.from_numpy(array).long())
    model = Encoder(case, "sdpa")

    def timed(function):
        def run():
            with torch.inference_mode():
                return [function(*batch).numpy() for batch in batches]

        return run

    functions = {
        "torch": timed(model),
        "torch, compiled": timed(torch.compile(model, dynamic=True)),
    }
    if case["dtype"] == "float32":
        functions |= _onnx(Encoder(case, "eager"), batches)
    return functions


def _onnx(model, batches):
    """The exported model with all optimizations of ONNX Runtime, and fused with its tool."""
    feeds = [{"ids": ids.numpy(), "mask": mask.numpy()} for ids, mask in batches]
    axes = {0: "batch", 1: "length"}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    functions = {}
    with tempfile.TemporaryDirectory() as folder:
        path, fused = os.path.join(folder, "model.onnx"), os.path.join(folder, "fused.onnx")
        example = torch.ones((2, 8), dtype=torch.long)
        torch.onnx.export(
            model,
            (example, example),
            path,
            input_names=["ids", "mask"],
            output_names=["vectors"],
            dynamic_axes={"ids": axes, "mask": axes},
            dynamo=False,
        )
        config = model.bert.config
        optimize_model(
            path,
            model_type="bert",
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
        ).save_model_to_file(fused)
        for name, file in (("ONNX Runtime", path), ("ONNX Runtime, fused", fused)):
            session = onnxruntime.InferenceSession(
                file, options, providers=["CPUExecutionProvider"]
            )
            functions[name] = _run_session(session, feeds)
    return functions


def _run_session(session, feeds):
    return lambda: [session.run(None, feed)[0] for feed in feeds]
