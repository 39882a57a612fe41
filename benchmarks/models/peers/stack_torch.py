"""Hugging Face's BERT encoder in torch: eager, compiled, with packed weights; in ONNX Runtime."""

import copy
import os
import tempfile

import onnxruntime
import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEncoder

from benchmarks.models.peers.stack_weights import (
    DFF,
    EPSILON,
    HEADS,
    LAYERS,
    WIDTH,
    stack_weights,
)

PLACES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "hidden": "intermediate.dense",
    "narrow": "output.dense",
    "norm2": "output.LayerNorm",
}


class Stack(torch.nn.Module):
    """The encoder: tensor in, tensor out."""

    def __init__(self):
        super().__init__()
        config = BertConfig(
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=DFF,
            layer_norm_eps=EPSILON,
        )
        config._attn_implementation = "sdpa"
        self.encoder = BertEncoder(config)

    def forward(self, x):
        return self.encoder(x).last_hidden_state


def variants(case, arrays):
    """ONNX Runtime has no bfloat16 on a CPU."""
    model = Stack().eval()
    state = {}
    for i, layer in enumerate(stack_weights()):
        for name, place in PLACES.items():
            kernel, bias = (torch.from_numpy(array) for array in layer[name])
            state[f"encoder.layer.{i}.{place}.weight"] = kernel.T if kernel.ndim == 2 else kernel
            state[f"encoder.layer.{i}.{place}.bias"] = bias
    model.load_state_dict(state)
    model.to(getattr(torch, case["dtype"]))
    x = torch.from_numpy(arrays["x"]).to(getattr(torch, case["dtype"]))

    def timed(function):
        def run():
            with torch.inference_mode():
                return [function(x).float().numpy()]

        return run

    packed = torch.compile(copy.deepcopy(model), options={"freezing": True})
    functions = {
        "torch": timed(model),
        "torch, compiled": timed(torch.compile(model)),
        "torch, compiled, frozen": timed(packed),
    }
    if case["dtype"] == "float32":
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stack.onnx")
            torch.onnx.export(model, (x,), path, input_names=["x"], dynamo=False)
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        functions["ONNX Runtime"] = lambda: session.run(None, {"x": arrays["x"]})
    return functions
