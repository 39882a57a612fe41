"""A classifier with torch and ONNX Runtime, in float32 and with dynamic int8 ranges."""

import os
import tempfile

import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import AutoModelForSequenceClassification

from benchmarks.compression.peers.classifier_calls import calls


class Classifier(torch.nn.Module):
    """Ids and mask to probabilities."""

    def __init__(self, folder, attention):
        super().__init__()
        options = {"attn_implementation": attention}
        self.model = AutoModelForSequenceClassification.from_pretrained(folder, **options).eval()

    def forward(self, ids, mask):
        return torch.softmax(self.model(ids, attention_mask=mask).logits, -1)


def variants(case, arrays):
    """Both libraries, both dtypes."""
    folder = f"{case['folder']}/model"
    model = Classifier(folder, "sdpa")
    small = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
    functions = {
        "torch": calls(case, arrays, _by_torch(model), _mib(model)),
        "torch, int8": calls(case, arrays, _by_torch(small), _mib(small)),
    }
    with tempfile.TemporaryDirectory() as files:
        path, int8 = os.path.join(files, "model.onnx"), os.path.join(files, "int8.onnx")
        example, axes = torch.ones((2, 8), dtype=torch.long), {0: "batch", 1: "length"}
        torch.onnx.export(
            Classifier(folder, "eager"),
            (example, example),
            path,
            input_names=["ids", "mask"],
            output_names=["probabilities"],
            dynamic_axes={"ids": axes, "mask": axes},
            dynamo=False,
        )
        quantize_dynamic(path, int8, weight_type=QuantType.QInt8)
        for name, file in (("ONNX Runtime", path), ("ONNX Runtime, int8", int8)):
            size = os.path.getsize(file) / 2**20
            functions[name] = calls(case, arrays, _by_onnx(file), size)
    return functions


def _by_torch(model):
    def classify(ids, mask):
        with torch.inference_mode():
            return model(torch.from_numpy(ids).long(), torch.from_numpy(mask).long()).numpy()

    return classify


def _by_onnx(file):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def classify(ids, mask):
        feed = {"ids": ids.astype("int64"), "mask": mask.astype("int64")}
        return session.run(None, feed)[0]

    return classify


def _mib(model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt")
        torch.save(model.state_dict(), path)
        return os.path.getsize(path) / 2**20
