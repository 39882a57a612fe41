"""A classifier with torch and ONNX Runtime, in float32 and with dynamic int8 ranges."""

import json
import os
import tempfile

import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, BertConfig
from transformers.models.bert.modeling_bert import BertEmbeddings, BertForSequenceClassification

from benchmarks.compression.peers.classifier_calls import calls


class Classifier(torch.nn.Module):
    """Ids and mask to probabilities."""

    def __init__(self, folder, attention):
        super().__init__()
        with open(f"{folder}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        options = {"attn_implementation": attention}
        if "embedding_size" in config:
            model = _factorized(folder, config, options)
        else:
            model = AutoModelForSequenceClassification.from_pretrained(folder, **options)
        self.model = model.eval()

    def forward(self, ids, mask):
        return torch.softmax(self.model(ids, attention_mask=mask).logits, -1)


class Factorized(torch.nn.Module):
    """Embeddings narrower or wider than the layers, which BERT in transformers lacks."""

    def __init__(self, config, width):
        super().__init__()
        self.narrow = BertEmbeddings(config)
        self.projection = torch.nn.Linear(config.hidden_size, width)

    def forward(self, **inputs):
        return self.projection(self.narrow(**inputs))


def _factorized(folder, config, options):
    config = {name: value for name, value in config.items() if name != "model_type"}
    model = BertForSequenceClassification(BertConfig(**config, **options))
    narrow = BertConfig(**{**config, "hidden_size": config["embedding_size"]})
    model.bert.embeddings = Factorized(narrow, config["hidden_size"])
    weights = {}
    for name, weight in load_file(f"{folder}/model.safetensors").items():
        name = name.replace("bert.embeddings.", "bert.embeddings.narrow.")
        name = name.replace(
            "bert.encoder.embedding_hidden_mapping_in", "bert.embeddings.projection"
        )
        weights[name] = weight
    model.load_state_dict(weights)
    return model


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
