"""The operator `Attention` of ONNX in ONNX Runtime."""

import onnxruntime
from onnx import TensorProto, checker, helper

OPSET = 23  # the first with `Attention`


def variants(case, arrays):
    """On a CPU there is neither a gradient nor bfloat16."""
    if case["task"] != "forward" or case["dtype"] != "float32":
        return {}
    names = ("q", "k", "v")
    node = helper.make_node("Attention", names, ["y"], is_causal=int(case["causal"]))
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, arrays["q"].shape) for name in some]
        for some in (names, ["y"])
    )
    graph = helper.make_graph([node], "attention", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    checker.check_model(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {name: arrays[name] for name in names}
    return {"ONNX Runtime": lambda: session.run(None, feeds)}
